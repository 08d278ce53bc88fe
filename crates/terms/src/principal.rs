//! Who is calling, as the authentication layer established it.

use std::fmt;
use std::sync::Arc;

use crate::id::{ServerId, TenantId};

/// How the caller proved who he is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The tenant is open to everyone (`auth: none`).
    None,
    /// An API key of the tenant.
    Key,
    /// An OAuth access token.
    OAuth,
}

/// The validated caller of one request. A principal belongs to exactly one tenant.
#[derive(Clone, PartialEq, Eq)]
pub struct Principal {
    /// The tenant whose server was addressed and whose credential was accepted.
    pub tenant: TenantId,
    /// `key:` for API keys, `anonymous` for open tenants, else the token's issuer.
    pub issuer: Arc<str>,
    /// The subject within the issuer.
    pub subject: Arc<str>,
    /// The OAuth client, where there is one.
    pub client: Option<Arc<str>>,
    /// Groups used by policy.
    pub groups: Arc<[String]>,
    /// Scopes granted to the credential.
    pub scopes: Arc<[String]>,
    /// The servers this credential is limited to; empty means all of the tenant.
    pub servers: Arc<[ServerId]>,
    /// How the caller proved who he is.
    pub proof: Proof,
    /// SHA-256 of the credential he showed, where there is one: tells later whether it is still
    /// accepted.
    pub credential: Option<Arc<[u8; 32]>>,
}

impl Principal {
    /// The caller of a tenant that is open to everyone.
    pub fn anonymous(tenant: TenantId) -> Self {
        Self {
            tenant,
            issuer: Arc::from("anonymous"),
            subject: Arc::from("anonymous"),
            client: None,
            groups: Arc::new([]),
            scopes: Arc::new([]),
            servers: Arc::new([]),
            proof: Proof::None,
            credential: None,
        }
    }

    /// Whether both have one [binding](Self::binding) in one tenant.
    pub fn is_same_caller(&self, other: &Self) -> bool {
        self.tenant == other.tenant
            && self.issuer == other.issuer
            && self.subject == other.subject
            && self.client.as_deref().unwrap_or("") == other.client.as_deref().unwrap_or("")
    }

    /// One unambiguous text of (issuer, subject, client), each with its length before it, so that
    /// no separator inside a part can make two callers equal. Handles are bound to it.
    pub fn binding(&self) -> String {
        let parts = [
            &*self.issuer,
            &*self.subject,
            self.client.as_deref().unwrap_or(""),
        ];
        let length: usize = parts.iter().map(|part| part.len() + 4).sum();
        let mut text = String::with_capacity(length);
        for (at, part) in parts.into_iter().enumerate() {
            if at > 0 {
                text.push('|');
            }
            push_decimal(&mut text, part.len());
            text.push(':');
            text.push_str(part);
        }
        text
    }
}

/// Writes a number without the general formatter: this is done for every request.
fn push_decimal(text: &mut String, number: usize) {
    if number >= 10 {
        push_decimal(text, number / 10);
    }
    text.push(char::from(b"0123456789"[number % 10]));
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principal")
            .field("tenant", &self.tenant)
            .field("issuer", &self.issuer)
            .field("subject", &self.subject)
            .field("proof", &self.proof)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 17: separators inside a subject do not merge two callers.
    #[test]
    fn case_17_separators_in_subjects_keep_callers_apart() {
        let tenant = TenantId::new("t").unwrap();
        let with = |issuer: &str, subject: &str| Principal {
            issuer: Arc::from(issuer),
            subject: Arc::from(subject),
            ..Principal::anonymous(tenant.clone())
        };
        assert_ne!(with("a|1:b", "c").binding(), with("a", "b|1:c").binding());
        assert!(!with("a|1:b", "c").is_same_caller(&with("a", "b|1:c")));
        assert!(with("a", "b").is_same_caller(&with("a", "b")));
        let long = "s".repeat(120);
        assert_eq!(with("", &long).binding(), format!("0:|120:{long}|0:"));
        assert_ne!(
            with("a", "b@c.example").binding(),
            with("a@b", "c.example").binding()
        );
    }
}
