//! Cancellations that have found no call in flight. The process that ran the call may have died, and
//! whoever goes on with it has to know that nobody wants it any more (CAN-01, EL-15).

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use vestibule_frame::Id;
use vestibule_store::SessionKey;

/// How many are remembered; most of them are for calls that have just ended.
const MOST: usize = 1024;
/// Longer than it takes to find a replica dead and to take over what it ran.
const KEPT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Unmet(Mutex<VecDeque<(Instant, SessionKey, Id)>>);

impl Unmet {
    pub(super) fn note(&self, session: &SessionKey, id: &Id) {
        let mut unmet = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if unmet.len() >= MOST {
            unmet.pop_front();
        }
        unmet.push_back((Instant::now(), session.clone(), id.clone()));
    }

    /// Whether a call that is found now has been cancelled meanwhile.
    pub(super) fn has(&self, session: &SessionKey, id: &Id) -> bool {
        let mut unmet = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unmet.retain(|(at, ..)| at.elapsed() < KEPT);
        unmet.iter().any(|(_, of, one)| of == session && one == id)
    }
}

#[cfg(test)]
mod tests {
    use vestibule_terms::{SessionId, TenantId};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn can_01_a_cancellation_is_remembered_for_a_while_and_not_for_another_session() {
        let tenant = TenantId::new("acme").unwrap();
        let key = |id: &str| SessionKey::new(&tenant, "alice", &SessionId::new(id));
        let unmet = Unmet::default();
        unmet.note(&key("s"), &Id::integer(7));
        assert!(unmet.has(&key("s"), &Id::integer(7)));
        assert!(!unmet.has(&key("s"), &Id::string("7")));
        assert!(!unmet.has(&key("t"), &Id::integer(7)));
        for number in 0..MOST {
            unmet.note(&key("t"), &Id::integer(i64::try_from(number).unwrap()));
        }
        assert!(!unmet.has(&key("s"), &Id::integer(7)), "bounded");
        assert!(unmet.has(&key("t"), &Id::integer(0)));
        tokio::time::advance(KEPT).await;
        assert!(!unmet.has(&key("t"), &Id::integer(0)));
    }
}
