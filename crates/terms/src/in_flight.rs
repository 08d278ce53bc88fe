//! The place of one request among those that its caller may have in flight.

use std::fmt;
use std::sync::Arc;

/// A place in the caller's budget, given back when the last clone is dropped: the answer holds one
/// until it has been read, and what goes on after the answer holds another.
#[derive(Clone)]
pub struct InFlight(Arc<dyn Send + Sync>);

impl InFlight {
    /// The place that `permit` gives back when it is dropped.
    pub fn new(permit: Arc<dyn Send + Sync>) -> Self {
        Self(permit)
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight")
            .field("held", &Arc::strong_count(&self.0))
            .finish()
    }
}
