//! The snapshot: what each tenant accepts as a credential. Built whole at each change, swapped
//! behind an `ArcSwap`, never mutated.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use vestibule_terms::TenantId;

use crate::api_key::ApiKey;

/// Where readers find the newest snapshot.
pub type SharedKeys = Arc<arc_swap::ArcSwap<Keys>>;

/// How callers of one tenant authenticate.
#[derive(Clone)]
pub enum Access {
    /// Everyone is let in, as the anonymous principal.
    Open,
    /// API keys, by id.
    Keys(HashMap<Box<str>, ApiKey>),
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Open => f.write_str("Open"),
            Access::Keys(keys) => write!(f, "Keys({})", keys.len()),
        }
    }
}

/// What every tenant accepts.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    tenants: HashMap<TenantId, Access>,
}

impl Keys {
    /// The snapshot of those tenants.
    pub fn new(tenants: impl IntoIterator<Item = (TenantId, Access)>) -> Self {
        Self {
            tenants: tenants.into_iter().collect(),
        }
    }

    /// What `tenant` accepts; a tenant that is not there accepts nothing.
    pub fn access(&self, tenant: &TenantId) -> Option<&Access> {
        self.tenants.get(tenant)
    }

    /// The next moment after `now` (milliseconds) at which a key stops being accepted.
    pub fn next_expiry(&self, now: u64) -> Option<u64> {
        let keys = self.tenants.values().flat_map(|access| match access {
            Access::Open => None,
            Access::Keys(keys) => Some(keys.values()),
        });
        keys.flatten()
            .flat_map(|key| [key.expires, key.previous.map(|(_, until)| until)])
            .flatten()
            .filter(|moment| *moment > now)
            .min()
    }

    /// A shared, swappable handle on this snapshot.
    pub fn shared(self) -> SharedKeys {
        Arc::new(arc_swap::ArcSwap::from_pointee(self))
    }
}
