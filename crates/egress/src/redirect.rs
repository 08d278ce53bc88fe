//! The one redirect that is followed: 307 or 308 within the same scheme, host and port (HTR-10).

use http::{StatusCode, Uri};
use url::Url;

/// How many redirects in a row are followed.
pub const MAX_REDIRECTS: usize = 3;

/// A redirect that is not followed. Nothing is sent to its target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedirectRefused {
    /// It would change the request: only 307 and 308 keep method and body.
    #[error("redirect with status {0}, which does not keep the request as it is")]
    Status(u16),
    /// It leads to another scheme, host or port.
    #[error("redirect to another origin: {0}")]
    Origin(String),
    /// It is one too many.
    #[error("more than {MAX_REDIRECTS} redirects")]
    TooMany,
    /// There is no target, or none that can be read.
    #[error("redirect without a readable target")]
    Malformed,
}

/// Whether a redirect of this status keeps method and body, and so may be followed at all.
pub(crate) fn keeps_request(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    )
}

/// Where the answer `status` with `location` to a request for `base` leads, after `hops` redirects
/// were already followed.
pub fn redirect_target(
    status: StatusCode,
    base: &Uri,
    location: Option<&str>,
    hops: usize,
) -> Result<Uri, RedirectRefused> {
    let base = Url::parse(&base.to_string()).map_err(|_| RedirectRefused::Malformed)?;
    let location = location.ok_or(RedirectRefused::Malformed)?;
    let mut target = base
        .join(location)
        .map_err(|_| RedirectRefused::Malformed)?;
    // the origin is named first: it is what an operator has to know, whatever else is wrong
    let is_same = target.scheme() == base.scheme()
        && target.host() == base.host()
        && target.port_or_known_default() == base.port_or_known_default();
    let has_userinfo = !target.username().is_empty() || target.password().is_some();
    if !is_same || has_userinfo {
        return Err(RedirectRefused::Origin(
            target.origin().ascii_serialization(),
        ));
    }
    if !keeps_request(status) {
        return Err(RedirectRefused::Status(status.as_u16()));
    }
    if hops >= MAX_REDIRECTS {
        return Err(RedirectRefused::TooMany);
    }
    target.set_fragment(None);
    target
        .as_str()
        .parse()
        .map_err(|_| RedirectRefused::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(status: u16, location: &str, hops: usize) -> Result<String, RedirectRefused> {
        let status = StatusCode::from_u16(status).unwrap();
        let base = "https://up.example/mcp?x=1".parse().unwrap();
        redirect_target(status, &base, Some(location), hops).map(|uri| uri.to_string())
    }

    /// HTR-10, case 138: 307 and 308 within the origin are followed, relative or absolute.
    #[test]
    fn htr_10_case_138_the_same_origin_is_followed() {
        for (location, expected) in [
            ("/mcp/", "https://up.example/mcp/"),
            ("mcp/?y=2#frag", "https://up.example/mcp/?y=2"),
            ("https://up.example/other", "https://up.example/other"),
            ("https://UP.example:443/other", "https://up.example/other"),
            ("//up.example/other", "https://up.example/other"),
        ] {
            for status in [307, 308] {
                assert_eq!(target(status, location, 0).unwrap(), expected, "{location}");
            }
        }
    }

    /// HTR-10, T56: everything else is refused and the target's origin named.
    #[test]
    fn htr_10_t56_other_origins_are_refused_by_name() {
        for (location, origin) in [
            ("http://up.example/mcp/", "http://up.example"),
            ("https://up.example:8443/", "https://up.example:8443"),
            ("https://evil.example/mcp", "https://evil.example"),
            ("//evil.example/mcp", "https://evil.example"),
            (
                "https://up.example.evil.example/",
                "https://up.example.evil.example",
            ),
            ("https://up.example@evil.example/", "https://evil.example"),
            ("https://user@up.example/", "https://up.example"),
            ("http://169.254.169.254/", "http://169.254.169.254"),
            ("file:///etc/passwd", "null"),
            (r"\\evil.example\x", "https://evil.example"),
        ] {
            let refused = target(307, location, 0).unwrap_err();
            assert_eq!(
                refused,
                RedirectRefused::Origin(origin.to_owned()),
                "{location}"
            );
        }
    }

    /// HTR-10: at most three, and never one that turns a POST into a GET.
    #[test]
    fn htr_10_hops_and_statuses_are_limited() {
        assert!(target(308, "/a", 2).is_ok());
        assert_eq!(target(308, "/a", 3), Err(RedirectRefused::TooMany));
        for status in [301, 302, 303] {
            assert_eq!(
                target(status, "/a", 0),
                Err(RedirectRefused::Status(status))
            );
        }
        assert_eq!(target(307, "https://[", 0), Err(RedirectRefused::Malformed));
    }
}
