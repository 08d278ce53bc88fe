//! What this room counts.

use vestibule_metrics::{Metrics, OpenStream, StreamKind};
use vestibule_store::Census;
use vestibule_streamlog::Resume;
use vestibule_terms::{Revision, TenantId};

/// The metrics of sessions and client streams.
#[derive(Clone)]
pub(crate) struct Observer {
    metrics: Metrics,
    /// Whether this process sees every session come and go.
    alone: bool,
}

impl Observer {
    pub(crate) fn new(metrics: Metrics, alone: bool) -> Self {
        Self { metrics, alone }
    }

    pub(crate) fn opened(&self, tenant: &TenantId, revision: Revision) {
        if self.alone {
            self.metrics.session_opened(tenant, revision);
        }
    }

    pub(crate) fn ended(&self, tenant: &TenantId, revision: Revision) {
        if self.alone {
            self.metrics.session_ended(tenant, revision);
        }
    }

    /// The store has counted its sessions.
    pub(crate) fn counted(&self, all: &[Census]) {
        let all = all.iter();
        self.metrics
            .sessions_are(all.map(|some| (&some.tenant, some.revision, some.live)));
    }

    pub(crate) fn resumed(&self, tenant: &TenantId, resume: &Resume) {
        self.metrics.stream_resumed(tenant, resume.label());
    }

    /// A client's stream, counted as open while the value lives.
    pub(crate) fn stream(&self, tenant: &TenantId, kind: StreamKind) -> Stream {
        Stream {
            metrics: self.metrics.clone(),
            tenant: tenant.clone(),
            kind,
            _open: self.metrics.stream_opened(tenant, kind),
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
