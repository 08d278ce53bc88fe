//! Names of sessions on disk. Like everywhere, there is none without a tenant (T48).

use vestibule_terms::{SessionId, TenantId};

use super::code::{Decoder, Encoder};
use crate::SessionKey;

impl SessionKey {
    /// Writes the whole name down.
    #[must_use]
    pub fn encode(&self, record: Encoder) -> Encoder {
        record
            .bytes(self.tenant().as_str().as_bytes())
            .bytes(self.principal().as_bytes())
            .bytes(self.id().expose().as_bytes())
    }

    /// Reads what [`SessionKey::encode`] wrote.
    pub fn decode(record: &mut Decoder) -> Option<Self> {
        let tenant = TenantId::new(&record.text()?).ok()?;
        let principal = record.text()?;
        let id = SessionId::new(&record.text()?);
        Some(Self::new(&tenant, &principal, &id))
    }
}
