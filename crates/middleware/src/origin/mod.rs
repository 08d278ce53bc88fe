//! Who may be talking to us from a browser: Host first (T18), then Origin (T19, ORG-01), and only
//! then whether anything stands at the address, so that a hostile page learns nothing of it.
//!
//! An accepted origin becomes the fact [`AllowedOrigin`]; a request without one is none of a
//! browser's and passes (ORG-03).

mod rule;
#[cfg(test)]
mod suite;

use std::sync::Arc;

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Request, Uri};
use vestibule_frame::body::FrameBody;
use vestibule_terms::plan::Origins;
use vestibule_terms::{Reject, ServerPlan};

use crate::facts::AllowedOrigin;
use crate::gate::{Gate, GateLayer};

pub use rule::{is_allowed_origin, is_listed_host};

/// The names of this listener.
#[derive(Debug, Clone)]
pub struct Origin {
    hosts: Arc<[String]>,
}

/// Checks Host, Origin, and that there is a plan.
pub type OriginLayer = GateLayer<Origin>;

impl OriginLayer {
    /// `hosts` are the names accepted in Host: lower case, without port.
    pub fn new(hosts: impl Into<Arc<[String]>>) -> Self {
        GateLayer(Origin {
            hosts: hosts.into(),
        })
    }
}

impl Gate for Origin {
    const STAGE: &'static str = "origin";

    fn admit(&self, request: &mut Request<FrameBody>) -> Result<(), Reject> {
        check_host(&self.hosts, request.headers(), request.uri())?;
        let plan = request.extensions().get::<Arc<ServerPlan>>();
        let origin = check_origin(request.headers(), plan.map(|plan| &plan.origins))?;
        if plan.is_none() {
            return Err(Reject::NoSuchPath);
        }
        if let Some(origin) = origin.cloned() {
            request.extensions_mut().insert(AllowedOrigin(origin));
        }
        Ok(())
    }
}

/// T18: exactly one name, the same in Host and `:authority`, and a listed one.
///
/// # Errors
/// 400 when there is no one name, 403 when it is not listed.
pub fn check_host(hosts: &[String], headers: &HeaderMap, uri: &Uri) -> Result<(), Reject> {
    let mut values = headers.get_all(HOST).iter();
    let (host, more) = (values.next(), values.next());
    if more.is_some() {
        return Err(Reject::InvalidRequest("Host must be sent once".into()));
    }
    let host = host.map(|value| value.to_str().unwrap_or_default());
    let authority = uri.authority().map(http::uri::Authority::as_str);
    let name = match (host, authority) {
        (Some(host), Some(authority)) if !host.eq_ignore_ascii_case(authority) => {
            return Err(Reject::InvalidRequest(
                "Host and :authority must be the same".into(),
            ));
        }
        (Some(name), _) | (None, Some(name)) => name,
        (None, None) => return Err(Reject::InvalidRequest("Host must be sent".into())),
    };
    if is_listed_host(name, hosts) {
        Ok(())
    } else {
        Err(Reject::HostRefused)
    }
}

fn check_origin<'h>(
    headers: &'h HeaderMap,
    origins: Option<&Origins>,
) -> Result<Option<&'h HeaderValue>, Reject> {
    let mut values = headers.get_all(ORIGIN).iter();
    let Some(origin) = values.next() else {
        return Ok(None);
    };
    let text = origin.to_str().map_err(|_error| Reject::OriginRefused)?;
    let allowed = origins.is_some_and(|origins| is_allowed_origin(text, origins));
    if !allowed || values.next().is_some() {
        return Err(Reject::OriginRefused);
    }
    Ok(Some(origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Outcome, plan, request, through};

    fn layer() -> OriginLayer {
        OriginLayer::new(vec!["mcp.example".to_owned(), "[::1]".to_owned()])
    }

    async fn send(uri: &str, head: &[(&str, &str)], origins: Option<Origins>) -> Outcome {
        let mut request = request("POST", uri, head);
        if let Some(origins) = origins {
            let mut plan = plan("acme", "default");
            plan.origins = origins;
            request.extensions_mut().insert(Arc::new(plan));
        }
        through(&layer(), request).await
    }

    fn listed() -> Option<Origins> {
        Some(Origins {
            listed: vec!["https://good.example".to_owned()],
            loopback: false,
        })
    }

    /// T18: only the names of this gateway are accepted in Host, on any port.
    #[tokio::test]
    async fn t18_only_listed_hosts_are_served() {
        for (host, status) in [
            ("mcp.example", 200),
            ("MCP.example:8080", 200),
            ("[::1]:80", 200),
            ("evil.example", 403),
            ("mcp.example.evil.example", 403),
            ("mcp.example:", 403),
            ("mcp.example:80:80", 403),
            ("mcp.example:99999999", 403),
            ("user@mcp.example", 403),
            ("0.0.0.0", 403),
            ("[::1", 403),
            ("", 403),
        ] {
            let outcome = send("/mcp", &[("host", host)], listed()).await;
            assert_eq!(outcome.status(), status, "{host}");
            let reason = (status == 403).then_some("host");
            assert_eq!(outcome.reason(), reason);
        }
    }

    /// T18: one name, or none is believed.
    #[tokio::test]
    async fn t18_host_and_authority_must_agree() {
        let absolute = "http://mcp.example/mcp";
        assert_eq!(send(absolute, &[], listed()).await.status(), 200);
        let same = [("host", "MCP.example")];
        assert_eq!(send(absolute, &same, listed()).await.status(), 200);
        let other = [("host", "[::1]")];
        assert_eq!(send(absolute, &other, listed()).await.status(), 400);
        assert_eq!(send("/mcp", &[], listed()).await.status(), 400);
        let twice = [("host", "mcp.example"), ("host", "mcp.example")];
        assert_eq!(send("/mcp", &twice, listed()).await.status(), 400);
    }

    /// T19, ORG-02, STA-01: an origin that is present and not exactly a listed one is 403.
    #[tokio::test]
    async fn t19_org_02_sta_01_unlisted_origins_are_403() {
        for (origin, status) in [
            ("https://good.example", 200),
            ("https://good.example:443", 200),
            ("null", 403),
            ("https://good.example.evil.com", 403),
            ("https://good.example:444", 403),
            ("http://good.example", 403),
            ("https://good.example@evil.com", 403),
            ("https://evil.com@good.example", 403),
            ("https://good.example/", 403),
            ("https://good.example\\.evil.com", 403),
            ("https://good.example https://evil.com", 403),
            ("https://xn--good.example", 403),
            ("https://good.example#", 403),
            ("https://good.example?", 403),
            ("//good.example", 403),
            ("good.example", 403),
            ("", 403),
        ] {
            let head = [("host", "mcp.example"), ("origin", origin)];
            let outcome = send("/mcp", &head, listed()).await;
            assert_eq!(outcome.status(), status, "{origin}");
            let reason = (status == 403).then_some("origin");
            assert_eq!(outcome.reason(), reason, "{origin}");
            let fact = outcome.seen.fact::<AllowedOrigin>();
            assert_eq!(fact.is_some(), status == 200);
        }
        let twice = [
            ("host", "mcp.example"),
            ("origin", "https://good.example"),
            ("origin", "https://good.example"),
        ];
        assert_eq!(send("/mcp", &twice, listed()).await.status(), 403);
    }

    /// ORG-01: loopback origins of any port, where the plan says so and nowhere else.
    #[tokio::test]
    async fn org_01_loopback_origins_are_accepted_where_the_plan_says() {
        let loopback = || {
            Some(Origins {
                listed: Vec::new(),
                loopback: true,
            })
        };
        for (origin, status) in [
            ("http://localhost:6274", 200),
            ("https://127.0.0.1", 200),
            ("http://[::1]:1", 200),
            ("http://localhost.evil.com", 403),
            ("http://127.0.0.2", 403),
            ("ftp://localhost", 403),
            ("http://0.0.0.0", 403),
            ("null", 403),
        ] {
            let head = [("host", "mcp.example"), ("origin", origin)];
            assert_eq!(
                send("/mcp", &head, loopback()).await.status(),
                status,
                "{origin}"
            );
            assert_eq!(send("/mcp", &head, listed()).await.status(), 403);
        }
    }

    /// ORG-03: no origin is no browser's. And an address where nothing stands is 404 only after the
    /// origin was judged by an empty list.
    #[tokio::test]
    async fn org_03_nothing_at_the_address_is_404_after_the_origin() {
        let host = ("host", "mcp.example");
        assert_eq!(send("/mcp", &[host], listed()).await.status(), 200);
        let outcome = send("/mcp/gone", &[host], None).await;
        assert_eq!((outcome.status(), outcome.reason()), (404, Some("path")));
        let head = [host, ("origin", "https://good.example")];
        let outcome = send("/mcp/gone", &head, None).await;
        assert_eq!((outcome.status(), outcome.reason()), (403, Some("origin")));
    }
}
