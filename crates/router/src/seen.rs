//! Which upstreams gave a caller a URI that carries no upstream's name: so that a link out of a
//! result can be read, though no list has it (TOL-16).
//!
//! Soft and bounded: losing an entry loses convenience only. Kept apart by caller, so that nothing
//! one user was given steers another, and a set, so that a second claim never replaces the first.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vestibule_exchange::Call;
use vestibule_terms::principal::Proof;
use vestibule_terms::{ServerPlan, UpstreamId};

/// Most URIs remembered, in all; the least recently noted goes.
const MAX: usize = 65_536;
/// Most upstreams of one URI: more than one is ambiguous already.
const CLAIMS_MAX: usize = 2;

/// Who was given a URI; none where callers cannot be told apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Holder(String);

impl Holder {
    /// The caller of a call: the session of an open tenant, else the principal.
    pub(crate) fn of(call: &Call) -> Option<Self> {
        match (&call.session, call.principal.proof) {
            (Some(session), Proof::None) => Some(Self(format!("s{}", session.session.expose()))),
            (None, Proof::None) => None,
            (_, Proof::Key | Proof::OAuth) => Some(Self(format!("p{}", call.principal.binding()))),
        }
    }
}

#[derive(Default)]
struct Table {
    claims: HashMap<u128, (u64, Vec<UpstreamId>)>,
    oldest: BTreeMap<u64, u128>,
    next: u64,
}

/// The URIs that callers were given.
#[derive(Default)]
pub(crate) struct Seen {
    table: Mutex<Table>,
    // Keyed hashes with keys of this process: nobody outside can make two URIs meet.
    hashers: [RandomState; 2],
}

impl Seen {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, plan: &ServerPlan, holder: &Holder, uri: &str) -> u128 {
        let content = (&plan.tenant, &plan.server, holder, uri);
        let [high, low] = &self.hashers;
        u128::from(high.hash_one(content)) << 64 | u128::from(low.hash_one(content))
    }

    /// `upstream` gave `uri` to `holder`.
    pub(crate) fn note(
        &self,
        plan: &ServerPlan,
        holder: &Holder,
        uri: &str,
        upstream: &UpstreamId,
    ) {
        let key = self.key(plan, holder, uri);
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        let (earlier, claims) = table.claims.entry(key).or_insert((number, Vec::new()));
        let earlier = std::mem::replace(earlier, number);
        if claims.len() < CLAIMS_MAX && !claims.contains(upstream) {
            claims.push(upstream.clone());
        }
        table.oldest.remove(&earlier);
        table.oldest.insert(number, key);
        if table.claims.len() > MAX
            && let Some((_, oldest)) = table.oldest.pop_first()
        {
            table.claims.remove(&oldest);
        }
    }

    /// The upstreams that gave `uri` to `holder`.
    pub(crate) fn of(&self, plan: &ServerPlan, holder: &Holder, uri: &str) -> Vec<UpstreamId> {
        let key = self.key(plan, holder, uri);
        self.table()
            .claims
            .get(&key)
            .map(|(_, claims)| claims.clone())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan;

    /// TOL-16: a set a caller, never a replacement, and bounded.
    #[test]
    fn tol_16_claims_are_kept_by_caller_and_bounded() {
        let (seen, plan) = (Seen::default(), plan(&["a", "b"]));
        let [a, b] = ["a", "b"].map(|id| UpstreamId::new(id).unwrap());
        let (me, you) = (Holder("me".into()), Holder("you".into()));
        seen.note(&plan, &me, "x:1", &a);
        seen.note(&plan, &me, "x:1", &a);
        assert_eq!(seen.of(&plan, &me, "x:1"), std::slice::from_ref(&a));
        assert!(seen.of(&plan, &you, "x:1").is_empty());
        seen.note(&plan, &me, "x:1", &b);
        assert_eq!(seen.of(&plan, &me, "x:1").len(), 2);
        for n in 0..MAX {
            seen.note(&plan, &you, &format!("y:{n}"), &a);
        }
        assert!(seen.of(&plan, &me, "x:1").is_empty());
        let table = seen.table();
        assert_eq!((table.claims.len(), table.oldest.len()), (MAX, MAX));
    }
}
