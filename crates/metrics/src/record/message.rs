//! The record of one message of a batch: an access record and metrics of its own (case 58).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::Method as HttpMethod;
use vestibule_terms::Record;

use crate::record::access::Open;
use crate::registry::Metrics;

/// Closes the record of its message when it is dropped.
#[derive(Debug)]
pub struct MessageRecord {
    record: Record,
    _open: Open,
}

impl MessageRecord {
    /// Opens the record of a message of `bytes` bytes in the request that `request` records.
    pub fn open(metrics: &Metrics, request: &Record, bytes: usize) -> Self {
        let record = request.of_message();
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let bytes = Arc::new(AtomicU64::new(bytes));
        let open = Open::new(metrics.clone(), record.clone(), bytes, &HttpMethod::POST);
        Self {
            record,
            _open: open,
        }
    }

    /// What the stages that serve the message write into.
    pub fn record(&self) -> &Record {
        &self.record
    }
}
