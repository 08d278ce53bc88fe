//! One request's credentials become a principal, or a refusal with its challenge.
//!
//! A credential stands in one `Authorization: Bearer` header, never in the query (AUT-01). The
//! challenge is built from the tenant's id alone: nothing of the request flows into it (T36).

use std::sync::{Arc, LazyLock};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use vestibule_terms::principal::{Principal, Proof};
use vestibule_terms::{Clock, Reject, ServerId, TenantId};

use crate::api_key::{self, ApiKey, KeyHash, Refusal};
use crate::keys::{Access, Keys};

/// The credential-bearing parts of a request.
#[derive(Clone, Copy)]
pub struct Presented<'a> {
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The query of the URI, undecoded.
    pub query: Option<&'a str>,
}

impl std::fmt::Debug for Presented<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Presented(…)")
    }
}

/// The issuer of every API key, made once.
static ISSUER: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("key:"));

/// Decides who is calling `server` of `tenant`.
///
/// # Errors
/// 400 for two credentials or one in the query, else 401; both with the tenant's challenge.
pub fn verify(
    keys: &Keys,
    clock: &dyn Clock,
    presented: Presented<'_>,
    tenant: &TenantId,
    server: &ServerId,
) -> Result<Principal, Reject> {
    well_formed(presented, tenant)?;
    let records = match keys.access(tenant) {
        Some(Access::Open) => return Ok(Principal::anonymous(tenant.clone())),
        Some(Access::Keys(records)) => Some(records),
        None => None,
    };
    let Some(token) = bearer(presented.headers) else {
        return Err(unauthenticated(tenant, None));
    };
    let refuse = |refusal: Refusal| unauthenticated(tenant, Some(refusal));
    let token = token.map_err(refuse)?;
    let id = api_key::id_of(token).map_err(refuse)?;
    let record = records.and_then(|records| records.get(id));
    let shown = KeyHash::of(token);
    api_key::accept_hash(shown, record, server, clock).map_err(refuse)?;
    let record = record.ok_or_else(|| refuse(Refusal::Unknown))?;
    Ok(principal(tenant, record, shown))
}

/// Whether the credential that made `principal` would still open `server`: what was let in before
/// a change of the keys, or before a key expired, ends with it (AUT-23).
pub fn still_accepted(
    keys: &Keys,
    clock: &dyn Clock,
    principal: &Principal,
    server: &ServerId,
) -> bool {
    match (keys.access(&principal.tenant), &principal.credential) {
        (Some(Access::Open), None) => true,
        (Some(Access::Keys(records)), Some(shown)) => {
            let shown = KeyHash::from_sha256(**shown);
            let mut records = records.values();
            records.any(|record| {
                record.subject == principal.subject
                    && api_key::accept_hash(shown, Some(record), server, clock).is_ok()
            })
        }
        (Some(Access::Open) | None, _) | (Some(Access::Keys(_)), None) => false,
    }
}

fn principal(tenant: &TenantId, record: &ApiKey, shown: KeyHash) -> Principal {
    Principal {
        tenant: tenant.clone(),
        issuer: Arc::clone(&ISSUER),
        subject: Arc::clone(&record.subject),
        client: None,
        groups: Arc::clone(&record.groups),
        scopes: Arc::clone(&record.scopes),
        servers: Arc::clone(&record.servers),
        proof: Proof::Key,
        credential: Some(Arc::new(shown.bytes())),
    }
}

/// STA-03: two credentials, or one in the query, is a malformed request whoever asks.
fn well_formed(presented: Presented<'_>, tenant: &TenantId) -> Result<(), Reject> {
    let malformed = |detail| {
        Err(Reject::MalformedAuthorization {
            challenge: format!(r#"Bearer realm="{tenant}", error="invalid_request""#),
            detail,
        })
    };
    if presented.headers.get_all(AUTHORIZATION).iter().count() > 1 {
        return malformed("one Authorization header is enough");
    }
    let query = presented.query.unwrap_or_default().as_bytes();
    if url::form_urlencoded::parse(query).any(|(name, _)| name == "access_token") {
        return malformed("a credential may not stand in the query");
    }
    Ok(())
}

/// The bearer token; absent when there is no `Authorization` or one of another scheme.
fn bearer(headers: &HeaderMap) -> Option<Result<&str, Refusal>> {
    let Ok(value) = headers.get(AUTHORIZATION)?.to_str() else {
        return Some(Err(Refusal::Malformed));
    };
    let (scheme, token) = value.trim().split_once(' ').unwrap_or((value.trim(), ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    Some(Ok(token.trim_start()))
}

/// AUT-07: `error` stands in the challenge only when a token was presented.
fn unauthenticated(tenant: &TenantId, refusal: Option<Refusal>) -> Reject {
    let error = match refusal {
        Some(_) => r#", error="invalid_token""#,
        None => "",
    };
    Reject::Unauthenticated {
        challenge: format!(r#"Bearer realm="{tenant}"{error}"#),
        reason: refusal.map_or("missing", Refusal::as_str),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use http::HeaderValue;
    use vestibule_terms::clock::ManualClock;

    use super::*;
    use crate::api_key::KeyHash;

    const NOW: u64 = 1_000_000;

    fn key(id: &str, letter: &str) -> String {
        format!("vsk_{id}_{}", letter.repeat(43))
    }

    fn record(id: &str) -> ApiKey {
        ApiKey {
            hash: KeyHash::of(&key(id, "a")),
            previous: None,
            expires: None,
            subject: Arc::from(id),
            groups: Arc::new(["bots".to_owned()]),
            scopes: Arc::new([]),
            servers: Arc::new([]),
        }
    }

    fn keys() -> Keys {
        let records = [
            ("plain", record("plain")),
            (
                "old",
                ApiKey {
                    expires: Some(NOW),
                    ..record("old")
                },
            ),
            (
                "rotated",
                ApiKey {
                    previous: Some((KeyHash::of(&key("rotated", "p")), NOW + 1)),
                    ..record("rotated")
                },
            ),
            (
                "narrow",
                ApiKey {
                    servers: Arc::new([ServerId::new("other").unwrap()]),
                    ..record("narrow")
                },
            ),
        ];
        let records: HashMap<_, _> = records
            .into_iter()
            .map(|(id, record)| (Box::from(id), record))
            .collect();
        let foreign = HashMap::from([(Box::from("foreign"), record("foreign"))]);
        let tenant = |text| TenantId::new(text).unwrap();
        Keys::new([
            (tenant("acme"), Access::Keys(records)),
            (tenant("beta"), Access::Keys(foreign)),
            (tenant("open"), Access::Open),
        ])
    }

    fn ask(tenant: &str, authorization: &[&str], query: Option<&str>) -> Result<Principal, Reject> {
        ask_at(NOW, tenant, authorization, query)
    }

    fn ask_at(
        now: u64,
        tenant: &str,
        authorization: &[&str],
        query: Option<&str>,
    ) -> Result<Principal, Reject> {
        let mut headers = HeaderMap::new();
        for value in authorization {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        let presented = Presented {
            headers: &headers,
            query,
        };
        let tenant = TenantId::new(tenant).unwrap();
        let server = ServerId::new("default").unwrap();
        verify(&keys(), &ManualClock::at(now), presented, &tenant, &server)
    }

    fn refused(result: Result<Principal, Reject>) -> (u16, String, &'static str) {
        let reject = result.unwrap_err();
        let reason = reject.reason();
        let response = reject.into_response(None);
        let challenge = response.headers()["www-authenticate"].to_str().unwrap();
        (response.status().as_u16(), challenge.to_owned(), reason)
    }

    #[test]
    fn a_key_of_the_tenant_lets_its_subject_in() {
        let principal = ask("acme", &[&format!("bEARER  {}", key("plain", "a"))], None).unwrap();
        assert_eq!(&*principal.subject, "plain");
        assert_eq!(&*principal.issuer, "key:");
        assert_eq!(*principal.groups, ["bots".to_owned()]);
        assert_eq!(principal.proof, Proof::Key);
    }

    /// Case 9: every 401 carries a challenge, and `invalid_token` only when a token was presented.
    #[test]
    fn case_09_every_401_carries_a_challenge() {
        let bare = r#"Bearer realm="acme""#;
        let invalid = r#"Bearer realm="acme", error="invalid_token""#;
        for (authorization, challenge, reason) in [
            (None, bare, "missing"),
            (Some("Basic Zm9v".to_owned()), bare, "missing"),
            (Some("Bearer x".to_owned()), invalid, "malformed"),
            (Some("Bearer".to_owned()), invalid, "malformed"),
            (
                Some(format!("Bearer {}", key("plain", "b"))),
                invalid,
                "unknown_key",
            ),
            (
                Some(format!("Bearer {}", key("nobody", "a"))),
                invalid,
                "unknown_key",
            ),
            (
                Some(format!("Bearer {}", key("old", "a"))),
                invalid,
                "expired",
            ),
            (
                Some(format!("Bearer {}", key("narrow", "a"))),
                invalid,
                "other_server",
            ),
            (Some(key("plain", "a")), bare, "missing"),
        ] {
            let headers: Vec<&str> = authorization.as_deref().into_iter().collect();
            let expected = (401, challenge.to_owned(), reason);
            assert_eq!(refused(ask("acme", &headers, None)), expected);
        }
    }

    /// AUT-22: a credential of another tenant is refused like any foreign one.
    #[test]
    fn aut_22_a_key_of_another_tenant_is_unknown() {
        let header = format!("Bearer {}", key("foreign", "a"));
        assert!(ask("beta", &[&header], None).is_ok());
        assert_eq!(refused(ask("acme", &[&header], None)).2, "unknown_key");
        assert_eq!(refused(ask("gone", &[&header], None)).2, "unknown_key");
    }

    /// T34, STA-03: a credential in the query, or a second one, is 400 even where everyone is let in.
    #[test]
    fn sta_03_t34_two_credentials_or_one_in_the_query_are_malformed() {
        let header = format!("Bearer {}", key("plain", "a"));
        for tenant in ["acme", "open"] {
            for query in ["access_token=x", "a=b&access_token", "%61ccess_token=x"] {
                let (status, challenge, _) = refused(ask(tenant, &[], Some(query)));
                assert_eq!(status, 400, "{query}");
                assert!(challenge.contains(r#"error="invalid_request""#));
            }
            assert_eq!(refused(ask(tenant, &[&header, &header], None)).0, 400);
        }
        assert!(ask("acme", &[&header], Some("x=access_token")).is_ok());
    }

    #[test]
    fn a_rotated_key_is_accepted_until_its_time() {
        let header = format!("Bearer {}", key("rotated", "p"));
        assert!(ask_at(NOW, "acme", &[&header], None).is_ok());
        assert_eq!(
            refused(ask_at(NOW + 1, "acme", &[&header], None)).2,
            "expired"
        );
        let current = format!("Bearer {}", key("rotated", "a"));
        assert!(ask_at(NOW + 1, "acme", &[&current], None).is_ok());
    }

    #[test]
    fn keys_of_the_admin_plane_open_nothing_here() {
        let header = format!("Bearer vsa_plain_{}", "a".repeat(43));
        assert_eq!(refused(ask("acme", &[&header], None)).2, "admin_key");
    }

    /// Case 15: a token of 9,000 bytes is compared whole, never cut.
    #[test]
    fn case_15_a_long_token_is_judged_whole() {
        let header = format!("Bearer {}{}", key("plain", "a"), "x".repeat(9000));
        assert_eq!(refused(ask("acme", &[&header], None)).2, "malformed");
    }

    #[test]
    fn an_open_tenant_ignores_what_is_presented() {
        let principal = ask("open", &["Bearer anything"], None).unwrap();
        assert_eq!(principal.proof, Proof::None);
    }
}
