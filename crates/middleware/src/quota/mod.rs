//! Budgets of tenant and caller, once both are known.
//!
//! The key of a budget is the tenant of the validated credential and the caller himself: never an address, a header, a session or a token, so
//! budgets are neither merged by mistake nor multiplied on purpose (case 76).
//!
//! [`Quotas`] is the seam: [`local::LocalQuotas`] counts in this process. What was admitted is held by
//! its [`Permit`] until the answer's body is closed; a call that goes on after its answer (HTTP+SSE)
//! keeps the [`InFlight`](vestibule_terms::InFlight) that goes with the request. A refusal reads up to 64 KiB of the body, for a
//! short time, to echo the request's id (STA-23); no other stage before the frame reads any.

mod held;
mod layer;
pub mod local;
mod service;

use std::sync::Arc;
use std::time::Duration;

use vestibule_metrics::Metrics;
use vestibule_terms::reject::Scope;
use vestibule_terms::{Principal, Reject};

use crate::plans::Budgets;

pub use layer::QuotaLayer;
pub use local::LocalQuotas;
pub use service::{Permitted, QuotaFuture, QuotaService};

/// What is being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A message to be answered: counts in flight until it is.
    Call,
    /// A stream of the client's: counts as open until it closes.
    Stream,
    /// Anything else: counts once.
    Other,
}

/// Which limit was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over {
    /// Whose.
    pub scope: Scope,
    /// `rate`, `in_flight` or `streams`.
    pub limit: &'static str,
    /// When to come back.
    pub retry_after: Duration,
}

/// Holds what was admitted; dropping the last clone gives it back.
pub type Permit = Arc<dyn Send + Sync>;

/// Counts against budgets.
pub trait Quotas: Clone + Send + Sync + 'static {
    /// Admits one use by `principal`, or says which limit was hit. Dropping the future, or the permit,
    /// gives back what was taken.
    fn admit(
        &self,
        budgets: &Budgets,
        principal: &Principal,
        wanted: Use,
    ) -> impl Future<Output = Result<Permit, Over>> + Send + 'static;

    /// The same, where it can be said without waiting: then nothing need be kept to wait with.
    fn admit_now(
        &self,
        _budgets: &Budgets,
        _principal: &Principal,
        _wanted: Use,
    ) -> Option<Result<Permit, Over>> {
        None
    }
}

/// Charges one use that no request of its own stands for: a further message of a batch.
///
/// # Errors
/// The limit that was hit, counted.
pub async fn charge<Q: Quotas>(
    quotas: &Q,
    metrics: &Metrics,
    budgets: &Budgets,
    principal: &Principal,
) -> Result<Permit, Reject> {
    let admitted = quotas.admit(budgets, principal, Use::Call).await;
    admitted.map_err(|over| {
        metrics.rate_limited(Some(&principal.tenant), over.scope);
        over.into()
    })
}

impl From<Over> for Reject {
    fn from(over: Over) -> Self {
        Reject::Limited {
            scope: over.scope,
            limit: over.limit,
            retry_after: over.retry_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use vestibule_frame::body::FrameBody;
    use vestibule_terms::TenantId;

    use super::*;
    use crate::plans::{Budget, Rate};
    use crate::testing::{Outcome, through, with_body};

    fn layer() -> (QuotaLayer<LocalQuotas>, Metrics) {
        let metrics = Metrics::new("0", "0");
        let layer = QuotaLayer::new(LocalQuotas::default(), metrics.clone());
        (layer, metrics)
    }

    fn budgets(burst: u32, in_flight: u32, streams: u32) -> Budgets {
        let budget = Budget {
            rate: Rate {
                count: 1,
                per: Duration::from_secs(10),
            },
            burst,
            in_flight,
            streams,
        };
        Budgets {
            tenant: budget,
            principal: budget,
        }
    }

    fn request(method: &str, body: &'static str, budgets: Budgets) -> Request<FrameBody> {
        let mut request = with_body(method, "/mcp", &[], body);
        let tenant = TenantId::new("acme").unwrap();
        let facts = request.extensions_mut();
        facts.insert(Arc::new(Principal::anonymous(tenant)));
        facts.insert(Arc::new(budgets));
        request
    }

    async fn body(outcome: Outcome) -> serde_json::Value {
        let body = FrameBody::new(outcome.response.into_body(), 1 << 20);
        serde_json::from_slice(&body.read().await.unwrap()).unwrap()
    }

    /// Case 77, STA-23: over a limit is 429 with Retry-After, the code and the request's id.
    #[tokio::test(start_paused = true)]
    async fn case_77_sta_23_a_call_over_its_rate_is_429_with_its_id() {
        let (layer, metrics) = layer();
        let call = r#"{"jsonrpc":"2.0","id":"a\u0041","method":"tools/call","params":{}}"#;
        let budgets = budgets(1, 9, 9);
        assert_eq!(
            through(&layer, request("POST", call, budgets))
                .await
                .status(),
            200
        );
        let outcome = through(&layer, request("POST", call, budgets)).await;
        assert_eq!((outcome.status(), outcome.reason()), (429, Some("limited")));
        assert_eq!(outcome.header("retry-after"), Some("10"));
        let line = r#"vestibule_rate_limited_total{scope="tenant",tenant="_unknown"} 1"#;
        assert!(metrics.expose().contains(line));
        let json = body(outcome).await;
        assert_eq!(json["id"], "aA");
        assert_eq!(json["error"]["code"], -31005);
        assert_eq!(json["error"]["data"]["limit"], "tenant.rate");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(
            through(&layer, request("POST", call, budgets))
                .await
                .status(),
            200
        );
    }

    /// STA-23: a notification and a body that is no message have no id to echo.
    #[tokio::test(start_paused = true)]
    async fn sta_23_without_an_id_none_is_echoed() {
        let (layer, _) = layer();
        let none = budgets(0, 0, 0);
        for text in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "junk",
            "",
        ] {
            let outcome = through(&layer, request("POST", text, none)).await;
            assert_eq!(outcome.status(), 429);
            assert!(body(outcome).await.get("id").is_none(), "{text}");
        }
    }

    /// T26: streams have a limit of their own, held until the stream closes.
    #[tokio::test(start_paused = true)]
    async fn t26_open_streams_are_limited_until_they_close() {
        let (layer, _) = layer();
        let budgets = budgets(100, 0, 1);
        let open = through(&layer, request("GET", "", budgets)).await;
        assert_eq!(open.status(), 200);
        let second = through(&layer, request("GET", "", budgets)).await;
        assert_eq!((second.status(), second.reason()), (429, Some("limited")));
        drop(open);
        assert_eq!(
            through(&layer, request("GET", "", budgets)).await.status(),
            200
        );
        assert_eq!(
            through(&layer, request("POST", "", budgets)).await.status(),
            429
        );
        assert_eq!(
            through(&layer, request("DELETE", "", budgets))
                .await
                .status(),
            200
        );
    }

    /// A call counts in flight until its answer has been read to the end, not only until its head.
    #[tokio::test(start_paused = true)]
    async fn calls_count_until_the_answer_is_read() {
        let (layer, _) = layer();
        let budgets = budgets(100, 1, 0);
        let first = through(&layer, request("POST", "{}", budgets)).await;
        drop(first.seen); // what served the request is done with it
        assert_eq!(
            through(&layer, request("POST", "{}", budgets))
                .await
                .status(),
            429
        );
        let read = FrameBody::new(first.response.into_body(), 100).read().await;
        assert_eq!(read.unwrap(), "through");
        assert_eq!(
            through(&layer, request("POST", "{}", budgets))
                .await
                .status(),
            200
        );
    }

    /// HSE-03: a call that goes on after its answer is counted as long as it does.
    #[tokio::test(start_paused = true)]
    async fn hse_03_what_goes_on_after_the_answer_is_in_flight() {
        let (layer, _) = layer();
        let budgets = budgets(100, 1, 0);
        let first = through(&layer, request("POST", "{}", budgets)).await;
        let goes_on = first.seen.fact::<vestibule_terms::InFlight>().unwrap();
        let read = FrameBody::new(first.response.into_body(), 100).read().await;
        assert_eq!(read.unwrap(), "through");
        drop(first.seen);
        let status = async || {
            through(&layer, request("POST", "{}", budgets))
                .await
                .status()
        };
        assert_eq!(status().await, 429);
        drop(goes_on);
        assert_eq!(status().await, 200);
    }

    /// T24: a refusal does not wait for a body that never comes.
    #[tokio::test(start_paused = true)]
    async fn t24_a_refusal_does_not_wait_for_a_slow_body() {
        let (layer, _) = layer();
        let mut request = request("POST", "", budgets(0, 0, 0));
        let silent = futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        *request.body_mut() = FrameBody::new(axum::body::Body::from_stream(silent), 100);
        assert_eq!(through(&layer, request).await.status(), 429);
    }
}
