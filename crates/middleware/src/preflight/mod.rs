//! CORS for origins that were accepted (ORG-05): OPTIONS is answered here, before authentication
//! (case 141), and every answer from behind, errors too, tells the browser what it may show
//! (case 143).
//!
//! Credentials travel in a header of the script's own making, so cookies are never allowed
//! (`Access-Control-Allow-Credentials` is not sent).

mod layer;
mod rule;
mod service;

pub use layer::PreflightLayer;
pub(crate) use rule::METHODS;
pub use service::{PreflightFuture, PreflightService};

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::PreflightLayer;
    use crate::facts::AllowedOrigin;
    use crate::testing::{Outcome, request, through};

    const ORIGIN: &str = "https://good.example";

    async fn send(method: &str, origin: bool, head: &[(&str, &str)]) -> Outcome {
        let mut request = request(method, "/mcp", head);
        if origin {
            let fact = AllowedOrigin(HeaderValue::from_static(ORIGIN));
            request.extensions_mut().insert(fact);
        }
        through(&PreflightLayer, request).await
    }

    /// Case 141, ORG-05: a preflight is answered without authentication.
    #[tokio::test]
    async fn case_141_org_05_a_preflight_is_204() {
        let asked = [
            ("access-control-request-method", "POST"),
            (
                "access-control-request-headers",
                "authorization, mcp-param-region,mcp-param-x y,x-evil, Mcp-Param-Team",
            ),
        ];
        let outcome = send("OPTIONS", true, &asked).await;
        assert_eq!(outcome.status(), 204);
        assert!(!outcome.seen.came_through());
        let header = |name| outcome.header(name).unwrap();
        assert_eq!(header("access-control-allow-origin"), ORIGIN);
        assert_eq!(
            header("access-control-allow-methods"),
            "POST, GET, DELETE, OPTIONS"
        );
        let allowed = header("access-control-allow-headers");
        for name in [
            "Authorization",
            "Mcp-Session-Id",
            "MCP-Protocol-Version",
            "Last-Event-ID",
            "Mcp-Method",
            "Mcp-Name",
            "traceparent",
            "mcp-param-region",
            "mcp-param-team",
        ] {
            assert!(allowed.split(", ").any(|allowed| allowed == name), "{name}");
        }
        assert!(!allowed.contains("evil") && !allowed.contains("x y"));
        assert!(header("vary").contains("Origin"));
        assert!(outcome.header("access-control-allow-credentials").is_none());
    }

    /// HTR-01: OPTIONS exists for others too, without CORS headers.
    #[tokio::test]
    async fn htr_01_options_without_an_origin_names_the_methods() {
        let outcome = send("OPTIONS", false, &[]).await;
        assert_eq!(outcome.status(), 204);
        assert_eq!(outcome.header("allow"), Some("POST, GET, DELETE, OPTIONS"));
        assert_eq!(outcome.header("access-control-allow-origin"), None);
    }

    /// Case 143: answers from behind, whatever they are, can be read by an accepted origin.
    #[tokio::test]
    async fn case_143_answers_expose_what_clients_need() {
        let outcome = send("POST", true, &[]).await;
        assert_eq!(outcome.status(), 200);
        assert_eq!(outcome.header("access-control-allow-origin"), Some(ORIGIN));
        let exposed = outcome.header("access-control-expose-headers").unwrap();
        for name in ["Mcp-Session-Id", "WWW-Authenticate", "Retry-After"] {
            assert!(exposed.contains(name), "{name}");
        }
        assert_eq!(outcome.header("vary"), Some("Origin"));
        let outcome = send("POST", false, &[]).await;
        assert_eq!(outcome.header("access-control-allow-origin"), None);
        assert_eq!(outcome.header("vary"), Some("Origin"));
    }
}
