//! What this room counts.

use vestibule_metrics::{Metrics, OpenStream, StreamKind};
use vestibule_streamlog::Resume;
use vestibule_terms::{Revision, TenantId};

/// The metrics of sessions and client streams.
#[derive(Clone)]
pub(crate) struct Observer(Metrics);

impl Observer {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self(metrics)
    }

    pub(crate) fn opened(&self, tenant: &TenantId, revision: Revision) {
        self.0.session_opened(tenant, revision);
    }

    pub(crate) fn ended(&self, tenant: &TenantId, revision: Revision) {
        self.0.session_ended(tenant, revision);
    }

    pub(crate) fn resumed(&self, tenant: &TenantId, resume: &Resume) {
        self.0.stream_resumed(tenant, resume.label());
    }

    /// A client's stream, counted as open while the value lives.
    pub(crate) fn stream(&self, tenant: &TenantId, kind: StreamKind) -> Stream {
        Stream {
            metrics: self.0.clone(),
            tenant: tenant.clone(),
            kind,
            _open: self.0.stream_opened(tenant, kind),
        }
    }
}

/// One open client stream.
pub(crate) struct Stream {
    metrics: Metrics,
    tenant: TenantId,
    kind: StreamKind,
    _open: OpenStream,
}

impl Stream {
    /// One event is about to be sent on it.
    pub(crate) fn event(&self) {
        self.metrics.stream_events(&self.tenant, self.kind, 1);
    }
}
