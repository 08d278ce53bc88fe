//! What arrives on a private upstream session outside every call: rewritten like everything else,
//! and noted by the catalog where it says that a list changed.

use std::sync::Arc;

use bytes::Bytes;
use vestibule_catalog::{Catalog, Kind};
use vestibule_exchange::{Arrival, Away, BoxFuture, Call, Inlet};
use vestibule_terms::{ServerPlan, UpstreamId};

use crate::names::Names;
use crate::service::Router;

/// Stands between an upstream session and the session room's inlet.
pub(crate) struct Arrivals {
    catalog: Arc<Catalog>,
    plan: Arc<ServerPlan>,
    inner: Arc<dyn Inlet>,
}

impl Arrivals {
    pub(crate) fn new(router: &Router, call: &Call, inner: Arc<dyn Inlet>) -> Self {
        Self {
            catalog: Arc::clone(&router.catalog),
            plan: Arc::clone(&call.plan),
            inner,
        }
    }
}

impl Inlet for Arrivals {
    fn arrive(&self, upstream: &UpstreamId, arrival: Arrival) {
        let names = Names {
            plan: &self.plan,
            upstream,
            giving: None,
        };
        let arrival = match arrival {
            Arrival::ListChanged(method, message) => {
                for kind in Kind::changed_by(method) {
                    self.catalog.invalidate(&self.plan.tenant, upstream, *kind);
                }
                Arrival::ListChanged(method, message)
            }
            Arrival::Updated(message) => match names.updated(message) {
                Some(message) => Arrival::Updated(message),
                None => return,
            },
            Arrival::Log { level, message } => Arrival::Log {
                level,
                message: names.log(message),
            },
            Arrival::Question(question) => Arrival::Question(names.question(question)),
            Arrival::QuestionWithdrawn(message) => Arrival::QuestionWithdrawn(message),
            Arrival::Missed => Arrival::Missed,
            Arrival::Notice(method, message) => Arrival::Notice(method, message),
        };
        self.inner.arrive(upstream, arrival);
    }

    fn recall(&self, upstream: &UpstreamId) -> BoxFuture<Result<Option<Bytes>, Away>> {
        self.inner.recall(upstream)
    }

    fn remember(
        &self,
        upstream: &UpstreamId,
        record: Bytes,
        instead: Option<Bytes>,
    ) -> BoxFuture<Option<Bytes>> {
        self.inner.remember(upstream, record, instead)
    }
}
