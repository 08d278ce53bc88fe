//! The other replicas, as they were seen last. One that is not there any more has taken its ears at
//! upstreams with it: whoever listens here may lack what was said meanwhile, and somebody has to
//! listen again.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vestibule_store::ReplicaId;

/// Who lived at the last look, and whether what somebody's end calls for is still to be done.
#[derive(Debug, Default)]
pub(crate) struct Others(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    living: HashSet<ReplicaId>,
    due: bool,
}

impl Others {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a look at who is remembered and who of them is dead. One that another replica has found
    /// dead may be forgotten already.
    pub(crate) fn seen(&self, remembered: Vec<ReplicaId>, dead: &[ReplicaId]) {
        let mut living: HashSet<_> = remembered.into_iter().collect();
        living.retain(|replica| !dead.contains(replica));
        let mut state = self.state();
        state.due |= !state.living.is_subset(&living);
        state.living = living;
    }

    /// Upstreams are to be listened to again.
    pub(crate) fn look_again(&self) {
        self.state().due = true;
    }

    /// Whether they are; from now on it is the caller's to do.
    pub(crate) fn take_due(&self) -> bool {
        std::mem::take(&mut self.state().due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_06_an_end_is_noticed_once_by_everybody() {
        let [a, b] = [ReplicaId::random(), ReplicaId::random()];
        let others = Others::default();
        others.seen(vec![a.clone(), b.clone()], std::slice::from_ref(&b));
        assert!(
            !others.take_due(),
            "it was dead before anybody here could listen"
        );
        others.seen(vec![a.clone(), b.clone()], std::slice::from_ref(&b));
        assert!(!others.take_due());
        others.seen(vec![a.clone()], &[]);
        assert!(!others.take_due(), "nor is it news that it was forgotten");
        others.seen(vec![a.clone()], std::slice::from_ref(&a));
        assert!(others.take_due() && !others.take_due(), "dead");
        others.seen(vec![a.clone(), b.clone()], &[]);
        assert!(!others.take_due());
        others.seen(vec![a], &[]);
        assert!(
            others.take_due(),
            "found dead and forgotten by somebody else"
        );
        others.look_again();
        assert!(others.take_due());
    }
}
