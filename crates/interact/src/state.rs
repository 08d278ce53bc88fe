//! The sealed `requestState` that a modern client carries from one round of a call to the next.
//!
//! It holds the upstream's own state as the exact token it was, and opens only for the same tenant,
//! server, caller, method, target and arguments, for as long as it may live (MRT-05, MRT-06, T45).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use vestibule_exchange::{Call, RpcError};
use vestibule_store::{Purpose, Sealer};
use vestibule_terms::reject::code;
use vestibule_terms::{Clock, ServerKind};

use crate::digest;

/// How long a state may be used.
const LIFETIME: Duration = Duration::from_secs(660);

const FORMAT: u8 = 1;

/// One round as it was sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Round {
    /// Rounds so far, the sealed one included.
    pub(crate) number: u8,
    /// The upstream's `requestState`, quotes and escapes as they came; none when it gave none.
    pub(crate) upstream: Option<Bytes>,
}

/// Seals and opens rounds.
#[derive(Clone)]
pub(crate) struct States {
    sealer: Sealer,
    clock: Arc<dyn Clock>,
}

impl States {
    pub(crate) fn new(sealer: Sealer, clock: Arc<dyn Clock>) -> Self {
        Self { sealer, clock }
    }

    pub(crate) fn seal(&self, call: &Call, round: &Round) -> String {
        let expiry = self.clock.unix_seconds() + LIFETIME.as_secs();
        let mut content = vec![FORMAT];
        content.extend_from_slice(&expiry.to_be_bytes());
        content.push(round.number);
        match &round.upstream {
            Some(token) => {
                content.push(1);
                content.extend_from_slice(token);
            }
            None => content.push(0),
        }
        let tenant = &call.plan.tenant;
        self.sealer
            .seal(Purpose::REQUEST_STATE, tenant, &bound_to(call), &content)
    }

    /// Opens what `call` brings.
    ///
    /// # Errors
    /// One wording, whatever is wrong.
    pub(crate) fn open(&self, call: &Call, text: &str) -> Result<Round, RpcError> {
        self.sealer
            .open(
                Purpose::REQUEST_STATE,
                &call.plan.tenant,
                &bound_to(call),
                text,
            )
            .ok()
            .and_then(|content| self.read(&content))
            .ok_or_else(invalid)
    }

    fn read(&self, content: &[u8]) -> Option<Round> {
        let (&FORMAT, rest) = content.split_first()? else {
            return None;
        };
        let (expiry, rest) = rest.split_first_chunk::<8>()?;
        if self.clock.unix_seconds() >= u64::from_be_bytes(*expiry) {
            return None;
        }
        let ([number, given], token) = rest.split_first_chunk::<2>()?;
        let upstream = (*given == 1).then(|| Bytes::copy_from_slice(token));
        Some(Round {
            number: *number,
            upstream,
        })
    }
}

/// MRT-05: whatever fails about a state reads the same.
pub(crate) fn invalid() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "invalid or expired requestState")
}

/// What a state is bound to: everything that the retry brings again, each part with its length.
fn bound_to(call: &Call) -> Vec<u8> {
    // Names and URIs of a federated server carry their upstream; a transparent one is bound to it
    // here, so that a state never goes to an upstream that took another's place.
    let upstream = match &call.plan.kind {
        ServerKind::Transparent(upstream) => upstream.as_str(),
        ServerKind::Federated(_) => "",
    };
    let binding = call.principal.binding();
    let digest = digest::of(call.message.frame());
    let parts: [&[u8]; 6] = [
        b"wrap",
        call.plan.server.as_str().as_bytes(),
        upstream.as_bytes(),
        binding.as_bytes(),
        call.method.as_str().as_bytes(),
        &digest,
    ];
    let mut bound = Vec::new();
    for part in parts {
        bound.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bound.extend_from_slice(part);
    }
    bound
}
