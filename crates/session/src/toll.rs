//! What the messages of a batch cost beyond its first: the request itself was charged once before it
//! came here, and a batch must not be a way around a budget (case 58).

use std::sync::Arc;

use futures_util::future::BoxFuture;
use vestibule_terms::{Principal, Reject, ServerPlan};

/// Holds what was charged; dropping it gives back what is held for the time of a call.
pub type Permit = Box<dyn Send + Sync>;

/// Charges one message of that caller to that server, or says which limit was hit.
pub type Toll = Arc<
    dyn Fn(&Principal, &ServerPlan) -> BoxFuture<'static, Result<Permit, Reject>> + Send + Sync,
>;
