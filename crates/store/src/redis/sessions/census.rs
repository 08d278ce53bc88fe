//! How many sessions there are, counted as the sweep goes through the tenants.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vestibule_terms::{Revision, TenantId};

use crate::Census;

type Counts = HashMap<TenantId, Vec<(Revision, usize)>>;

/// A sweep looks at some of many tenants; what is told is what the last whole round of them found.
#[derive(Debug, Default)]
pub(super) struct Counting(Mutex<Rounds>);

#[derive(Debug, Default)]
struct Rounds {
    counted: Counts,
    counting: Counts,
    /// Some tenant of this round was not counted.
    spoiled: bool,
}

impl Counting {
    pub(super) fn tenant(&self, tenant: &TenantId, counts: Vec<(Revision, usize)>) {
        self.rounds().counting.insert(tenant.clone(), counts);
    }

    /// Some tenants have been counted, all of them or not; the last of the round or not.
    pub(super) fn page(&self, whole: bool, last: bool) {
        let mut rounds = self.rounds();
        rounds.spoiled |= !whole;
        if last {
            let counted = std::mem::take(&mut rounds.counting);
            if !std::mem::take(&mut rounds.spoiled) {
                rounds.counted = counted;
            }
        }
    }

    pub(super) fn counted(&self) -> Vec<Census> {
        let rounds = self.rounds();
        let tenants = rounds.counted.iter();
        let all = tenants.flat_map(|(tenant, counts)| {
            counts.iter().map(|&(revision, live)| Census {
                tenant: tenant.clone(),
                revision,
                live,
            })
        });
        all.collect()
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
