//! Names of records. A name without a tenant cannot be written down (T48).

use std::sync::Arc;

use vestibule_terms::{SessionId, TenantId};

/// The name of everything that belongs to one session: tenant, principal and id together, so that
/// a record is found only by the caller it belongs to (SES-02).
///
/// ```compile_fail
/// # use vestibule_store::SessionKey;
/// # use vestibule_terms::SessionId;
/// let key = SessionKey::new(&SessionId::new("no tenant, no principal"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    tenant: TenantId,
    principal: Arc<str>,
    id: SessionId,
}

impl SessionKey {
    /// The session `id` of the caller whose [binding](vestibule_terms::Principal::binding) is
    /// `principal`.
    pub fn new(tenant: &TenantId, principal: &str, id: &SessionId) -> Self {
        Self {
            tenant: tenant.clone(),
            principal: Arc::from(principal),
            id: id.clone(),
        }
    }

    /// The tenant.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The binding of the principal.
    pub fn principal(&self) -> &Arc<str> {
        &self.principal
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }
}
