//! What the gateway counts, and the record it writes of every request.
//!
//! The one crate that names `prometheus`. Rooms get a [`Metrics`] handle and call typed methods;
//! nobody else knows families, labels or buckets, so every bound on cardinality (T70) is kept
//! here. There is no global registry: two handles in one process never see each other.
//!
//! [`record`] holds the outermost layer of the pipeline, which names a request, and when its
//! response body closes writes one access record and observes the metrics.

mod buckets;
mod expose;
mod families;
mod family;
mod labels;
pub mod record;
mod registry;

pub use record::{MessageRecord, RecordLayer, RecordService, with_current_request_id};
pub use registry::{Metrics, OpenStream, StreamKind};
