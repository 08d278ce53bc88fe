//! Starts the clocks of the request (LIF-09) as the plan sets them. It cuts nothing by itself: the
//! rooms that wait read the fact, and a stream may outlive it.

use std::sync::Arc;

use http::Request;
use vestibule_frame::body::FrameBody;
use vestibule_terms::{Deadline, Reject, ServerPlan};

use crate::gate::{Gate, GateLayer};

/// See the [module](crate::deadline).
#[derive(Debug, Clone, Copy)]
pub struct Clocks;

/// Inserts [`Deadline`].
pub type DeadlineLayer = GateLayer<Clocks>;

impl DeadlineLayer {
    /// The clocks are the plan's.
    pub fn new() -> Self {
        GateLayer(Clocks)
    }
}

impl Default for DeadlineLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate for Clocks {
    const STAGE: &'static str = "deadline";

    fn admit(&self, request: &mut Request<FrameBody>) -> Result<(), Reject> {
        let plan = request.extensions().get::<Arc<ServerPlan>>();
        let plan = plan.ok_or(Reject::Internal)?;
        let deadline = Deadline::starting_now(plan.call_idle, plan.call_total);
        request.extensions_mut().insert(deadline);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{plan, request, through};

    /// LIF-09: silence and total come from the plan.
    #[tokio::test(start_paused = true)]
    async fn lif_09_the_clocks_of_the_plan_start_with_the_request() {
        let mut request = request("POST", "/mcp", &[]);
        let mut plan = plan("t", "s");
        plan.call_total = Duration::from_secs(90);
        request.extensions_mut().insert(Arc::new(plan));
        let outcome = through(&DeadlineLayer::new(), request).await;
        let deadline = outcome.seen.fact::<Deadline>().unwrap();
        assert_eq!(deadline.idle, Duration::from_secs(60));
        assert_eq!(deadline.remaining(), Duration::from_secs(90));
    }
}
