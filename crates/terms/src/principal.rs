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

    /// One unambiguous text of (issuer, subject, client), each with its length before it, so that
    /// no separator inside a part can make two callers equal. Handles are bound to it.
    pub fn binding(&self) -> String {
        let client = self.client.as_deref().unwrap_or("");
        format!(
            "{}:{}|{}:{}|{}:{}",
            self.issuer.len(),
            self.issuer,
            self.subject.len(),
            self.subject,
            client.len(),
            client
        )
    }
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
        assert_ne!(
            with("a", "b@c.example").binding(),
            with("a@b", "c.example").binding()
        );
    }
}
