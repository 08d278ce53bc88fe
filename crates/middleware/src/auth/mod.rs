//! Who is calling: the credential of the request against the snapshot of its tenant. The decision
//! precedes everything that is protocol (AUT-22), for every method of the endpoint (AUT-01).
//!
//! A credential that is presented and refused counts against the address; one that is missing does
//! not, since that is how every client begins.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Request;
use vestibule_auth::{Keys, Presented, SharedKeys, verify};
use vestibule_frame::body::FrameBody;
use vestibule_metrics::Metrics;
use vestibule_terms::reject::Scope;
use vestibule_terms::{Clock, Reject, ServerPlan};

use crate::address::Penalties;
use crate::facts::{self, ClientAddress};
use crate::gate::{Gate, GateLayer};

/// What callers are checked against.
#[derive(Clone)]
pub struct Auth {
    keys: Arc<ArcSwap<Keys>>,
    clock: Arc<dyn Clock>,
    penalties: Arc<Penalties>,
    metrics: Metrics,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").finish_non_exhaustive()
    }
}

/// Inserts `Arc<Principal>`.
pub type AuthLayer = GateLayer<Auth>;

impl AuthLayer {
    /// Checks against the newest of `keys`; failures count in `penalties`.
    pub fn new(
        keys: SharedKeys,
        clock: Arc<dyn Clock>,
        penalties: Arc<Penalties>,
        metrics: Metrics,
    ) -> Self {
        GateLayer(Auth {
            keys,
            clock,
            penalties,
            metrics,
        })
    }
}

impl Gate for Auth {
    const STAGE: &'static str = "auth";

    fn admit(&self, request: &mut Request<FrameBody>) -> Result<(), Reject> {
        let plan = request.extensions().get::<Arc<ServerPlan>>();
        let plan = plan.ok_or(Reject::Internal)?;
        let presented = Presented {
            headers: request.headers(),
            query: request.uri().query(),
        };
        let keys = self.keys.load();
        let verdict = verify(
            &keys,
            self.clock.as_ref(),
            presented,
            &plan.tenant,
            &plan.server,
        );
        let principal = verdict.map_err(|refusal| self.penalise(request, refusal))?;
        let record = facts::record(request.extensions());
        record.set_principal(Box::from(&*principal.subject));
        request.extensions_mut().insert(Arc::new(principal));
        // Nothing behind needs the credential, so nothing behind can leak it.
        request.headers_mut().remove(http::header::AUTHORIZATION);
        Ok(())
    }
}

impl Auth {
    /// The refusal itself, or 429 when the address has had too many.
    fn penalise(&self, request: &Request<FrameBody>, refusal: Reject) -> Reject {
        if refusal.reason() == "missing" {
            return refusal;
        }
        let Some(ClientAddress(address)) = request.extensions().get() else {
            return refusal;
        };
        match self.penalties.count(*address) {
            Ok(()) => refusal,
            Err(retry_after) => {
                let record = facts::record(request.extensions());
                self.metrics.rate_limited(record.tenant(), Scope::Address);
                Reject::Limited {
                    scope: Scope::Address,
                    limit: "failed_authentications",
                    retry_after,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::{IpAddr, Ipv4Addr};

    use vestibule_auth::{Access, ApiKey, KeyHash};
    use vestibule_terms::clock::ManualClock;
    use vestibule_terms::{Principal, TenantId};

    use super::*;
    use crate::testing::{Outcome, plan, request, through};

    const KEY: &str = "vsk_ci_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn layer() -> AuthLayer {
        let key = ApiKey {
            hash: KeyHash::of(KEY),
            previous: None,
            expires: None,
            subject: Arc::from("bot"),
            groups: Arc::new([]),
            scopes: Arc::new([]),
            servers: Arc::new([]),
        };
        let records = HashMap::from([(Box::from("ci"), key)]);
        let keys = Keys::new([(TenantId::new("acme").unwrap(), Access::Keys(records))]);
        AuthLayer::new(
            keys.shared(),
            Arc::new(ManualClock::at(1)),
            Arc::new(Penalties::default()),
            Metrics::new("0", "0"),
        )
    }

    async fn send(layer: &AuthLayer, method: &str, uri: &str, head: &[(&str, &str)]) -> Outcome {
        let mut request = request(method, uri, head);
        let facts = request.extensions_mut();
        facts.insert(Arc::new(plan("acme", "default")));
        facts.insert(ClientAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        through(layer, request).await
    }

    /// AUT-01, case 9: every method is authenticated, and every 401 carries the challenge.
    #[tokio::test]
    async fn aut_01_case_09_every_method_is_authenticated() {
        let layer = layer();
        let bearer = format!("Bearer {KEY}");
        for method in ["POST", "GET", "DELETE", "PATCH"] {
            let outcome = send(&layer, method, "/mcp", &[]).await;
            assert_eq!((outcome.status(), outcome.reason()), (401, Some("missing")));
            let challenge = outcome.header("www-authenticate");
            assert_eq!(challenge, Some(r#"Bearer realm="acme""#));
            let head = [("authorization", bearer.as_str())];
            let outcome = send(&layer, method, "/mcp", &head).await;
            assert_eq!(outcome.status(), 200);
            let principal = outcome.seen.fact::<Arc<Principal>>().unwrap();
            assert_eq!(&*principal.subject, "bot");
            assert!(
                outcome.seen.headers().is_empty(),
                "the credential ends here"
            );
        }
    }

    /// T34, STA-03: a credential in the query is 400.
    #[tokio::test]
    async fn t34_sta_03_a_credential_in_the_query_is_400() {
        let outcome = send(&layer(), "POST", "/mcp?access_token=x", &[]).await;
        let expected = (400, Some("invalid_request"));
        assert_eq!((outcome.status(), outcome.reason()), expected);
    }

    /// T27: a bad credential too many is 429, while a good one from the same address is let in and a
    /// missing one still gets its challenge.
    #[tokio::test(start_paused = true)]
    async fn t27_guessing_is_slowed_down_by_address() {
        let layer = layer();
        let bad = [("authorization", "Bearer x")];
        for _ in 0..100 {
            assert_eq!(send(&layer, "POST", "/mcp", &bad).await.status(), 401);
        }
        let outcome = send(&layer, "POST", "/mcp", &bad).await;
        assert_eq!((outcome.status(), outcome.reason()), (429, Some("limited")));
        assert!(outcome.header("retry-after").is_some());
        assert_eq!(send(&layer, "POST", "/mcp", &[]).await.status(), 401);
        let bearer = format!("Bearer {KEY}");
        let good = [("authorization", bearer.as_str())];
        assert_eq!(send(&layer, "POST", "/mcp", &good).await.status(), 200);
    }
}
