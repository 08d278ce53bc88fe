//! Calls that begin with no request of a client: another process began what they are about, or their
//! upstream wants another request.

use std::sync::Arc;

use vestibule_exchange::{Call, Continuation, Rounds};
use vestibule_frame::{Draft, Frame, Id, Limits, encode};
use vestibule_terms::{Deadline, Method, Principal, Record, ServerPlan};

use super::live::Live;

impl Live {
    /// The call of `user` that goes on with it, without progress. Nothing of it is sent: the message
    /// only says what it is about.
    pub(super) fn continuing(
        &self,
        plan: &Arc<ServerPlan>,
        user: &Arc<Principal>,
        (method, id): (Method, &Id),
        continuation: Continuation,
    ) -> Call {
        let message = encode::request(id, method.as_str(), None);
        let message =
            Frame::parse(message, &Limits::default()).expect("a request of our own is well-formed");
        Call {
            continues: Some(Arc::new(continuation)),
            ..self.calling(plan, user, (method, Draft::new(message)))
        }
    }

    /// A call of `user`, without progress.
    pub(super) fn calling(
        &self,
        plan: &Arc<ServerPlan>,
        user: &Arc<Principal>,
        (method, message): (Method, Draft),
    ) -> Call {
        Call {
            plan: Arc::clone(plan),
            principal: Arc::clone(user),
            record: Record::default(),
            revision: self.revision(),
            method,
            message,
            session: Some(self.name.clone()),
            capabilities: Arc::clone(&self.capabilities),
            log_level: self.level(),
            progress: false,
            param_headers: Arc::new([]),
            deadline: Deadline::starting_now(plan.call_idle, plan.call_total),
            inlet: Some(Arc::clone(&self.inlet)),
            continues: None,
            rounds: Rounds::default(),
        }
    }
}
