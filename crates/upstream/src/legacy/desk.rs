//! The open questions of all upstreams, under ids of our own.
//!
//! Two upstream sessions may ask under the same id; what is handed out is unique. Whoever takes a
//! question off the desk answers it: it can be taken once.

use std::sync::Arc;

use dashmap::DashMap;
use vestibule_exchange::QuestionRef;
use vestibule_frame::Id;

use crate::legacy::peer::Peer;

/// The open questions.
#[derive(Debug, Default)]
pub(crate) struct Desk(DashMap<Id, Open>);

/// One question that waits for its answer.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    /// Who asked, as it was handed out.
    pub(crate) from: QuestionRef,
    /// The id that the upstream gave it.
    pub(crate) upstream_id: Id,
    /// The session it was asked on.
    pub(crate) peer: Arc<Peer>,
}

// === impl Desk ===

impl Desk {
    /// Lays a question on the desk.
    pub(crate) fn put(&self, open: Open) {
        self.0.insert(open.from.id.clone(), open);
    }

    /// Takes a question, if it is open and was asked by that upstream.
    pub(crate) fn take(&self, to: &QuestionRef) -> Option<Open> {
        self.0
            .remove_if(&to.id, |_, open| open.from == *to)
            .map(|(_, open)| open)
    }

    /// Removes a question that nobody will answer.
    pub(crate) fn forget(&self, id: &Id) {
        self.0.remove(id);
    }

    /// Whether a question still waits.
    pub(crate) fn is_open(&self, id: &Id) -> bool {
        self.0.contains_key(id)
    }
}
