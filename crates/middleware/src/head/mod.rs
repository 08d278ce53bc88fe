//! The entrance: headers that are too large are 431 (HDR-23), control headers that stand twice or
//! under an alias are 400 (T21), and everything that is not ours is dropped (T22).
//!
//! From here on the body is a [`vestibule_frame::body::FrameBody`] and the header view is a fact (`Arc<Head>`). Two
//! `Authorization` headers are left to the auth stage, which knows the challenge; two `Origin` or
//! `Host` headers to the origin stage.

mod layer;
mod rule;
mod service;

pub use layer::HeadLayer;
pub use service::HeadService;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use axum::body::Body;
    use http::{HeaderName, HeaderValue, Request, Response};
    use tower::{Layer, Service, ServiceExt};
    use vestibule_frame::head::Head;
    use vestibule_terms::Record;

    use super::HeadLayer;
    use crate::testing::Seen;

    async fn send(head: &[(&str, &[u8])]) -> (Response<Body>, Record, Seen) {
        let seen = Seen::default();
        let record = Record::default();
        let mut request = Request::new(Body::empty());
        for (name, value) in head {
            let name: HeaderName = name.parse().unwrap();
            let value = HeaderValue::from_bytes(value).unwrap();
            request.headers_mut().append(name, value);
        }
        request.extensions_mut().insert(record.clone());
        let mut service = HeadLayer::new(1 << 20).layer(seen.service());
        let ready = service.ready().await.unwrap();
        let response: Result<_, Infallible> = ready.call(request).await;
        (response.unwrap(), record, seen)
    }

    /// HDR-23, case 15: values of 24 KiB pass whole, larger ones and 64 KiB in all are refused.
    #[tokio::test]
    async fn hdr_23_case_15_oversized_headers_are_431() {
        let fits = vec![b'a'; 24 * 1024];
        let (response, _, seen) = send(&[("authorization", &fits)]).await;
        assert_eq!(response.status(), 200);
        assert_eq!(seen.headers()["authorization"].len(), fits.len());
        let large = vec![b'a'; 24 * 1024 + 1];
        let (response, record, seen) = send(&[("x-any", &large)]).await;
        assert_eq!(response.status(), 431);
        assert_eq!(record.reason(), Some(&"headers_too_large"));
        assert!(!seen.came_through());
        let many: [(&str, &[u8]); 3] = [("a", &fits), ("b", &fits), ("c", &fits)];
        assert_eq!(send(&many).await.0.status(), 431);
    }

    async fn code(head: &[(&str, &[u8])]) -> (u16, Option<i64>, Option<&'static str>) {
        let (response, record, _) = send(head).await;
        let status = response.status().as_u16();
        (status, record.code().copied(), record.reason().copied())
    }

    /// T21: repeated and underscore-spelt control headers are refused, with the modern code where
    /// any version sent is a modern one.
    #[tokio::test]
    async fn t21_repeated_control_headers_are_refused_by_era() {
        let modern: (&str, &[u8]) = ("mcp-protocol-version", b"2026-07-28");
        let legacy: (&str, &[u8]) = ("mcp-protocol-version", b"2025-11-25");
        let session: (&str, &[u8]) = ("mcp-session-id", b"a");
        let refused = |code| (400, Some(code), Some("duplicate_header"));
        assert_eq!(code(&[session, session]).await, refused(-32600));
        assert_eq!(code(&[legacy, session, session]).await, refused(-32600));
        assert_eq!(code(&[modern, session, session]).await, refused(-32020));
        assert_eq!(code(&[legacy, modern]).await, refused(-32020));
        assert_eq!(code(&[("mcp_session_id", b"a")]).await, refused(-32600));
        let param: (&str, &[u8]) = ("mcp-param-tenant", b"a");
        assert_eq!(code(&[modern, param, param]).await, refused(-32020));
        let accept: (&str, &[u8]) = ("accept", b"*/*");
        assert_eq!(code(&[accept, accept]).await.0, 200);
    }

    /// STA-03: two credentials are the auth stage's to refuse, with its challenge.
    #[tokio::test]
    async fn sta_03_two_authorization_headers_reach_the_auth_stage() {
        let authorization: (&str, &[u8]) = ("authorization", b"Bearer a");
        let (_, _, seen) = send(&[authorization, authorization]).await;
        assert_eq!(seen.headers().get_all("authorization").iter().count(), 2);
    }

    /// T22: no header of a hop, a proxy or an impostor survives the entrance.
    #[tokio::test]
    async fn t22_headers_that_are_not_ours_are_dropped() {
        let (_, _, seen) = send(&[
            ("connection", b"keep-alive, mcp-name"),
            ("mcp-name", b"x"),
            ("x-tenant-id", b"victim"),
            ("mcp-init-host", b"internal"),
            ("x-envoy-original-path", b"/admin"),
            ("cookie", b"a=b"),
            ("upgrade", b"x"),
            ("te", b"trailers"),
            ("proxy-authorization", b"x"),
            ("x-http-method-override", b"DELETE"),
            ("mcp-method", b"tools/call"),
            ("mcp-param-region", b"eu"),
            ("traceparent", b"00-a"),
        ])
        .await;
        let kept = seen.headers();
        let mut names: Vec<&str> = kept.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["mcp-method", "mcp-param-region", "traceparent"]);
    }

    #[tokio::test]
    async fn the_header_view_is_a_fact_from_here_on() {
        let (_, _, seen) = send(&[("mcp-protocol-version", b"2025-06-18")]).await;
        let head = seen.fact::<Arc<Head>>().unwrap();
        assert_eq!(head.version.as_deref(), Some("2025-06-18"));
    }
}
