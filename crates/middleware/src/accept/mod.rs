//! Which methods exist, what the client accepts, and what it sends.
//!
//! Liberal where a client is merely odd (case 132), strict where a form would go unchecked
//! (case 97): a body is either JSON that will be read and governed, or 415. For GET and DELETE only
//! the fact [`vestibule_terms::Accepts`] is written: whether a stream exists there is decided with the session.

mod rule;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Method, Request};
use vestibule_frame::body::FrameBody;
use vestibule_terms::Reject;

use crate::gate::{Gate, GateLayer};
use crate::preflight;

pub use rule::{accepts, is_json};

/// See the [module](crate::accept).
#[derive(Debug, Clone, Copy)]
pub struct Negotiation;

/// Inserts [`vestibule_terms::Accepts`].
pub type AcceptLayer = GateLayer<Negotiation>;

impl AcceptLayer {
    /// One rule for every server.
    pub fn new() -> Self {
        GateLayer(Negotiation)
    }
}

impl Default for AcceptLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate for Negotiation {
    const STAGE: &'static str = "accept";

    fn admit(&self, request: &mut Request<FrameBody>) -> Result<(), Reject> {
        let accepted = accepts(request.headers());
        match *request.method() {
            Method::POST => {
                if accepted.nothing() {
                    return Err(Reject::NotAcceptable);
                }
                check_body(request.headers())?;
            }
            Method::GET | Method::DELETE => {}
            _ => {
                return Err(Reject::MethodNotAllowed {
                    allow: preflight::METHODS,
                });
            }
        }
        request.extensions_mut().insert(accepted);
        Ok(())
    }
}

/// HDR-04: JSON, as it is.
fn check_body(headers: &HeaderMap) -> Result<(), Reject> {
    let json = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(is_json);
    let plain = headers.get_all(CONTENT_ENCODING).iter().all(|value| {
        value
            .to_str()
            .is_ok_and(|text| text.trim().eq_ignore_ascii_case("identity"))
    });
    if json && plain {
        Ok(())
    } else {
        Err(Reject::UnsupportedMediaType)
    }
}

#[cfg(test)]
mod tests {
    use vestibule_terms::Accepts;

    use super::*;
    use crate::testing::{Outcome, request, through};

    async fn send(method: &str, head: &[(&str, &str)]) -> Outcome {
        through(&AcceptLayer::new(), request(method, "/mcp", head)).await
    }

    /// Case 132, HDR-01: odd Accept headers are answered in a form they allow; 406 only when there
    /// is none.
    #[tokio::test]
    async fn case_132_hdr_01_accept_is_read_liberally() {
        type Forms = Option<(bool, bool)>;
        const JSON: Forms = Some((true, false));
        const SSE: Forms = Some((false, true));
        const BOTH: Forms = Some((true, true));
        let table: [(&[&str], Forms); 14] = [
            (&[], BOTH),
            (&["*/*"], BOTH),
            (&[""], BOTH),
            (&["application/*, text/event-stream"], BOTH),
            (&["application/json, text/event-stream"], BOTH),
            (&["application/json"], JSON),
            (&["text/event-stream"], SSE),
            (&["application/json;q=0, text/event-stream"], SSE),
            (&["application/json;q=0.0, */*"], SSE),
            (&["application/json", "text/event-stream"], BOTH),
            (&["APPLICATION/JSON , Text/Event-Stream;q=0.1"], BOTH),
            (&["text/html"], None),
            (&["text/html, */*;q=0"], None),
            (&["application/json;q=0,text/event-stream;q=0"], None),
        ];
        for (values, expected) in table {
            let mut head = vec![("content-type", "application/json")];
            head.extend(values.iter().map(|value| ("accept", *value)));
            let outcome = send("POST", &head).await;
            let fact = outcome.seen.fact::<Accepts>();
            let forms = fact.map(|accepts| (accepts.json, accepts.sse));
            assert_eq!(forms, expected, "{values:?}");
            let status = if expected.is_some() { 200 } else { 406 };
            assert_eq!(outcome.status(), status, "{values:?}");
        }
    }

    /// HTR-06: of two forms that are both accepted, weight and then order say which is preferred.
    #[tokio::test]
    async fn htr_06_a_stream_is_preferred_by_weight_and_order() {
        for (accept, stream) in [
            ("application/json, text/event-stream", false),
            ("text/event-stream, application/json", true),
            ("application/json;q=0.5, text/event-stream", true),
            ("text/event-stream;q=0.5, application/json", false),
            ("text/event-stream, */*", false),
            ("text/event-stream", true),
            ("application/json", false),
            ("*/*", false),
        ] {
            let head = [("content-type", "application/json"), ("accept", accept)];
            let outcome = send("POST", &head).await;
            let fact = outcome.seen.fact::<Accepts>().unwrap();
            assert_eq!(fact.wants_stream(), stream, "{accept}");
        }
    }

    /// Case 97, HDR-04: a body is JSON or it is refused; nothing in between goes unchecked.
    #[tokio::test]
    async fn case_97_hdr_04_only_json_is_taken() {
        for (content_type, status) in [
            ("application/json", 200),
            ("Application/JSON", 200),
            ("application/json;charset=utf-8", 200),
            ("application/json ; charset=\"UTF-8\"", 200),
            ("application/json; charset=utf8", 200),
            ("application/json; charset=utf-16", 415),
            ("application/json-rpc", 415),
            ("application/jsonp", 415),
            ("text/plain", 415),
            ("text/json", 415),
            ("application/json, text/plain", 415),
            ("", 415),
        ] {
            let outcome = send("POST", &[("content-type", content_type)]).await;
            assert_eq!(outcome.status(), status, "{content_type}");
            let reason = (status == 415).then_some("content_type");
            assert_eq!(outcome.reason(), reason);
        }
        assert_eq!(send("POST", &[]).await.status(), 415);
    }

    /// HDR-04: no content coding is undone, so none is accepted.
    #[tokio::test]
    async fn hdr_04_content_codings_are_refused() {
        let json = ("content-type", "application/json");
        for (coding, status) in [("identity", 200), ("gzip", 415), ("", 415)] {
            let outcome = send("POST", &[json, ("content-encoding", coding)]).await;
            assert_eq!(outcome.status(), status, "{coding}");
        }
    }

    /// T27: methods that do not exist are 405 with those that do.
    #[tokio::test]
    async fn t27_unknown_methods_are_405() {
        for method in ["PUT", "PATCH", "HEAD", "TRACE", "FOO"] {
            let outcome = send(method, &[]).await;
            assert_eq!(
                (outcome.status(), outcome.reason()),
                (405, Some("http_method"))
            );
            assert_eq!(outcome.header("allow"), Some("POST, GET, DELETE, OPTIONS"));
        }
    }

    /// HDR-03 is the session's to decide: here a GET passes whatever it accepts.
    #[tokio::test]
    async fn hdr_03_a_get_passes_with_what_it_accepts_as_a_fact() {
        for (accept, named) in [("text/event-stream", true), ("*/*", false)] {
            let outcome = send("GET", &[("accept", accept)]).await;
            let accepts = outcome.seen.fact::<Accepts>().unwrap();
            assert_eq!((accepts.sse, accepts.sse_named), (true, named));
        }
        let outcome = send("DELETE", &[("accept", "text/html")]).await;
        assert!(outcome.seen.fact::<Accepts>().unwrap().nothing());
    }
}
