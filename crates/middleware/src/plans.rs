//! The snapshot of what is served: tenants, their servers as plans, their budgets. Built whole at
//! each change, swapped behind an `ArcSwap`, never mutated.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use vestibule_terms::{FastHash, ServerPlan};

/// Where readers find the newest snapshot.
pub type SharedPlans = Arc<ArcSwap<Plans>>;

/// So many in that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many; 0 means none.
    pub count: u32,
    /// In how much time; never zero.
    pub per: Duration,
}

/// One budget; 0 means none allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Requests.
    pub rate: Rate,
    /// How many of them at once.
    pub burst: u32,
    /// POST requests being answered at once.
    pub in_flight: u32,
    /// GET streams open at once.
    pub streams: u32,
}

/// What a tenant and each of its callers may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// The whole tenant.
    pub tenant: Budget,
    /// Each caller.
    pub principal: Budget,
}

/// One address's target.
#[derive(Debug, Clone)]
pub struct Found {
    /// The plan of the server.
    pub plan: Arc<ServerPlan>,
    /// The budgets of its tenant.
    pub budgets: Arc<Budgets>,
}

/// Everything that is served.
#[derive(Debug, Clone, Default)]
pub struct Plans {
    tenants: HashMap<Box<str>, HashMap<Box<str>, Found, FastHash>, FastHash>,
}

impl Plans {
    /// The snapshot of those tenants, each with its plans and budgets.
    pub fn new(tenants: impl IntoIterator<Item = (Vec<ServerPlan>, Budgets)>) -> Self {
        let mut plans = Self::default();
        for (servers, budgets) in tenants {
            let budgets = Arc::new(budgets);
            for plan in servers {
                let found = Found {
                    plan: Arc::new(plan),
                    budgets: Arc::clone(&budgets),
                };
                plans
                    .tenants
                    .entry(Box::from(found.plan.tenant.as_str()))
                    .or_default()
                    .insert(Box::from(found.plan.server.as_str()), found);
            }
        }
        plans
    }

    /// What stands at that address.
    pub fn find(&self, tenant: &str, server: &str) -> Option<&Found> {
        self.tenants.get(tenant)?.get(server)
    }

    /// A shared, swappable handle on this snapshot.
    pub fn shared(self) -> SharedPlans {
        Arc::new(ArcSwap::from_pointee(self))
    }
}
