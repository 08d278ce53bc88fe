//! What a call that has succeeded changes in its session.

use std::sync::Arc;

use vestibule_exchange::{Final, RpcError};
use vestibule_frame::Frame;
use vestibule_store::modify;
use vestibule_terms::Method;
use vestibule_terms::reject::code;

use super::live::Live;
use crate::room::Shared;

/// What is done in the session when a call has succeeded.
pub(super) enum Effect {
    None,
    /// The result is `{}` whatever upstreams say (5.1).
    Level,
    Subscribe(Arc<str>),
    Unsubscribe(Arc<str>),
}

// === impl Effect ===

impl Effect {
    pub(super) fn of(method: Method, frame: &Frame) -> Self {
        let uri = || {
            frame
                .uri()
                .and_then(|uri| frame.string(uri))
                .map(|uri| Arc::from(&*uri))
        };
        if method == Method::LoggingSetLevel {
            Effect::Level
        } else if method == Method::ResourcesSubscribe {
            uri().map_or(Effect::None, Effect::Subscribe)
        } else if method == Method::ResourcesUnsubscribe {
            uri().map_or(Effect::None, Effect::Unsubscribe)
        } else {
            Effect::None
        }
    }

    /// Keeps in the session what the call has settled; the end as the client gets it.
    pub(super) async fn apply(self, shared: &Shared, live: &Live, end: Final) -> Final {
        let ok = match &end {
            Final::Message(draft) => draft.frame().result().is_some(),
            Final::Empty => true,
            Final::Error(_)
            | Final::View(_)
            | Final::List(_)
            | Final::Wanted(_)
            | Final::Cancelled => false,
        };
        let (uri, add) = match self {
            Effect::Level if matches!(end, Final::Cancelled) => return end,
            Effect::Level => return Final::Empty,
            Effect::Subscribe(uri) if ok => (uri, true),
            Effect::Unsubscribe(uri) if ok => (uri, false),
            Effect::None | Effect::Subscribe(_) | Effect::Unsubscribe(_) => return end,
        };
        let kept = modify(&*shared.rooms.sessions, &live.key, |state| {
            if add {
                state.subscriptions.insert(Arc::clone(&uri));
            } else {
                state.subscriptions.remove(&uri);
            }
        });
        match kept.await {
            Ok(_) => end,
            Err(error) => {
                tracing::warn!(%error, "a subscription could not be kept");
                Final::Error(RpcError::new(code::INTERNAL, "internal error"))
            }
        }
    }
}
