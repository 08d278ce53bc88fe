//! Which headers say what to a browser.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW,
    VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Methods of the endpoint.
pub(crate) const METHODS: &str = "POST, GET, DELETE, OPTIONS";

const REQUEST_HEADERS: &str = "Authorization, Content-Type, Accept, MCP-Protocol-Version, \
     Mcp-Session-Id, Last-Event-ID, Mcp-Method, Mcp-Name, traceparent, tracestate, baggage";

const EXPOSED: &str = "Mcp-Session-Id, WWW-Authenticate, Retry-After, X-Request-Id";

/// Most `Mcp-Param-*` headers that one preflight may name.
const MAX_PARAMS: usize = 64;

/// Headers of an answer to OPTIONS; `origin` is an accepted one.
pub(super) fn preflight(asked: &HeaderMap, origin: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ALLOW, HeaderValue::from_static(METHODS));
    let Some(origin) = origin else {
        headers.insert(VARY, HeaderValue::from_static("Origin"));
        return headers;
    };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static(METHODS),
    );
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(asked));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    let vary = "Origin, Access-Control-Request-Headers";
    headers.insert(VARY, HeaderValue::from_static(vary));
    headers
}

/// The fixed list, and of those asked for the ones that mirror arguments: their names are the
/// tools' own and cannot be listed here.
fn allowed_headers(asked: &HeaderMap) -> HeaderValue {
    let mut allowed = REQUEST_HEADERS.to_owned();
    let asked = asked.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let names = asked
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| name.trim().parse::<HeaderName>().ok());
    let params = names.filter(|name| name.as_str().starts_with("mcp-param-"));
    for name in params.take(MAX_PARAMS) {
        allowed.push_str(", ");
        allowed.push_str(name.as_str());
    }
    HeaderValue::from_str(&allowed).unwrap_or(HeaderValue::from_static(REQUEST_HEADERS))
}

/// Adds to an answer what the browser must know of it.
pub(super) fn expose(headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
    headers.append(VARY, HeaderValue::from_static("Origin"));
    let Some(origin) = origin else { return };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(EXPOSED),
    );
}
