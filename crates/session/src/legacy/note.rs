//! What is kept of a running call beside its events, so that another process can go on with it when
//! this one is gone (EL-15): who calls what, and where the call stands at its upstream.

use std::sync::Arc;

use bytes::Bytes;
use vestibule_exchange::Continuation;
use vestibule_frame::Id;
use vestibule_store::{Decoder, Encoder};
use vestibule_terms::principal::Proof;
use vestibule_terms::{Method, Principal, TenantId, UpstreamId};

const FORMAT: u8 = 1;
/// Of a call that waits between two rounds.
const BETWEEN: u8 = 2;

/// Everything of a note but the upstream's mark, which changes with every event.
#[derive(Debug, Clone)]
pub(super) struct Heading(Bytes);

/// A note that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// What is called.
    pub(super) method: Method,
    /// The client's progress token.
    pub(super) token: Option<Id>,
    /// Who calls; what decides over a call that runs is not kept.
    pub(super) user: Arc<Principal>,
    /// Where it stands.
    pub(super) standing: Standing,
}

/// Where a call stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its upstream answers it.
    Called(Continuation),
    /// Its upstream wants to be told something first.
    Between(Between),
}

/// A call between two rounds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Between {
    pub(super) upstream: UpstreamId,
    /// The name of its record.
    pub(super) record: String,
    /// The stage it was in.
    pub(super) step: u64,
}

// === impl Heading ===

impl Heading {
    /// The heading of a call of `user`.
    pub(super) fn new(
        method: Method,
        token: Option<&Id>,
        user: &Principal,
        upstream: &UpstreamId,
    ) -> Self {
        let heading = Encoder::new(FORMAT)
            .bytes(method.as_str().as_bytes())
            .optional(token.map(Id::as_bytes))
            .bytes(user.issuer.as_bytes())
            .bytes(user.subject.as_bytes())
            .optional(user.client.as_deref().map(str::as_bytes))
            .optional(user.credential.as_deref().map(|hash| &hash[..]))
            .bytes(upstream.as_str().as_bytes());
        Self(Bytes::from(heading.finish()))
    }

    /// The note of the call that stands at `mark`.
    pub(super) fn note(&self, mark: &[u8]) -> Bytes {
        Bytes::from([&self.0[..], mark].concat())
    }

    /// The note of the call that stands between two rounds, as its record is found.
    pub(super) fn between_rounds(&self, found: &[u8]) -> Bytes {
        let fields = self.0.get(1..).unwrap_or_default();
        Bytes::from([&[BETWEEN], fields, found].concat())
    }
}

// === impl Note ===

impl Note {
    /// Reads a note of a session of `tenant`; nothing that another version wrote differently.
    pub(super) fn read(tenant: &TenantId, note: &Bytes) -> Option<Self> {
        let called = Decoder::new(FORMAT, note.clone());
        let is_called = called.is_some();
        let mut fields = called.or_else(|| Decoder::new(BETWEEN, note.clone()))?;
        let method = Method::parse(&fields.text()?)?;
        let token = match fields.optional()? {
            Some(token) => Some(Id::from_token(token)?),
            None => None,
        };
        let (issuer, subject) = (Arc::from(fields.text()?), Arc::from(fields.text()?));
        let client = match fields.optional()? {
            Some(client) => Some(Arc::from(String::from_utf8(client.to_vec()).ok()?)),
            None => None,
        };
        let credential = match fields.optional()? {
            Some(hash) => Some(Arc::new(hash.as_ref().try_into().ok()?)),
            None => None,
        };
        let upstream = UpstreamId::new(&fields.text()?).ok()?;
        let rest = fields.rest();
        let standing = if is_called {
            let mark = rest;
            Standing::Called(Continuation::Call { upstream, mark })
        } else {
            let (step, record) = rest.split_first_chunk::<8>()?;
            Standing::Between(Between {
                upstream,
                record: String::from_utf8(record.to_vec()).ok()?,
                step: u64::from_be_bytes(*step),
            })
        };
        let proof = if credential.is_some() {
            Proof::Key
        } else {
            Proof::None
        };
        Some(Self {
            method,
            token,
            user: Arc::new(Principal {
                issuer,
                subject,
                client,
                credential,
                proof,
                ..Principal::anonymous(tenant.clone())
            }),
            standing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn el_15_a_note_says_who_calls_what_and_where_it_stands() {
        let tenant = TenantId::new("acme").unwrap();
        let upstream = UpstreamId::new("up").unwrap();
        let user = Principal {
            issuer: Arc::from("key:"),
            subject: Arc::from("alice"),
            client: Some(Arc::from("app")),
            credential: Some(Arc::new([7; 32])),
            proof: Proof::Key,
            ..Principal::anonymous(tenant.clone())
        };
        let token = Id::string("t");
        for token in [None, Some(&token)] {
            let heading = Heading::new(Method::ToolsCall, token, &user, &upstream);
            let written = heading.note(b"mark");
            let read = Note::read(&tenant, &written).unwrap();
            assert_eq!(read.method, Method::ToolsCall);
            assert_eq!(read.token.as_ref(), token);
            assert!(read.user.is_same_caller(&user));
            assert_eq!(read.user.credential, user.credential);
            let expected = Continuation::Call {
                upstream: upstream.clone(),
                mark: Bytes::from_static(b"mark"),
            };
            assert_eq!(read.standing, Standing::Called(expected));
            for cut in 0..written.len() - b"mark".len() {
                assert_eq!(Note::read(&tenant, &written.slice(..cut)), None, "{cut}");
            }
            let between = heading.between_rounds(b"\0\0\0\0\0\0\0\x0712");
            let read = Note::read(&tenant, &between).unwrap();
            let expected = Between {
                upstream: upstream.clone(),
                record: "12".to_owned(),
                step: 7,
            };
            assert_eq!(read.standing, Standing::Between(expected));
        }
    }
}
