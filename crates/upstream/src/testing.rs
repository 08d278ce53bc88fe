//! What the tests of this crate have in common.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use vestibule_exchange::{Capabilities, Outbound, Sharing};
use vestibule_frame::{Draft, Frame, Limits};
use vestibule_terms::{Deadline, Method, Record, TenantId, UpstreamId};

/// A message.
pub(crate) fn frame(text: &str) -> Frame {
    Frame::parse(Bytes::copy_from_slice(text.as_bytes()), &Limits::default()).unwrap()
}

/// A call of a catalog that wants nothing special.
pub(crate) fn outbound(method: Method, text: &str) -> Outbound {
    Outbound {
        tenant: TenantId::new("t").unwrap(),
        upstream: UpstreamId::new("up").unwrap(),
        sharing: Sharing::Catalog,
        era: vestibule_terms::Era::Legacy,
        method,
        message: Draft::new(frame(text)),
        name: None,
        param_headers: Vec::new(),
        capabilities: Arc::new(Capabilities::default()),
        log_level: None,
        progress: false,
        deadline: Deadline::starting_now(Duration::from_secs(60), Duration::from_secs(600)),
        record: Record::default(),
        inlet: None,
        continues: None,
    }
}
