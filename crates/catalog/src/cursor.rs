//! Cursors: sealed, deterministic, and good for one list of one server (PAG-02).
//!
//! A cursor of a merged list names the last item before the next page, never an offset, so that a
//! changed list neither breaks it nor repeats an item. A cursor of a transparent server wraps the
//! upstream's own. Sealing is deterministic with an expiry of whole days: the same page always
//! yields the same cursor, and a page that may be shared carries one that anybody can use (XT-514).

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use vestibule_exchange::RpcError;
use vestibule_exchange::view::CacheScope;
use vestibule_store::{Purpose, Sealer};
use vestibule_terms::reject::code;
use vestibule_terms::{Clock, Principal, ServerPlan};

use crate::kind::Kind;

/// Longest cursor of an upstream that is wrapped.
pub const UPSTREAM_CURSOR_MAX: usize = 16 * 1024;

const FORMAT: u8 = 1;
const DAY: u64 = 24 * 60 * 60;
const HOLDER_BYTES: usize = 16;

/// Where the next page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// After this item of the merged list.
    After {
        /// Its exposed name, URI or template.
        key: String,
        /// Its upstream: two upstreams may list one `https` URI.
        upstream: String,
    },
    /// At this cursor of the one upstream.
    Upstream(String),
}

/// An opened cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Who may keep the pages of this list (CCH-09).
    pub scope: CacheScope,
    /// Where the next page begins.
    pub position: Position,
}

/// Whose list a cursor belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The server.
    pub plan: &'a ServerPlan,
    /// The caller; it matters for private lists.
    pub principal: &'a Principal,
    /// The kind of list.
    pub kind: Kind,
}

/// Seals and opens cursors.
#[derive(Clone)]
pub struct Cursors {
    sealer: Sealer,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Cursors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursors").finish_non_exhaustive()
    }
}

impl Cursors {
    /// Cursors under the keys of `sealer`.
    pub fn new(sealer: Sealer, clock: Arc<dyn Clock>) -> Self {
        Self { sealer, clock }
    }

    /// The text of a cursor.
    pub fn seal(&self, owner: Owner<'_>, cursor: &Cursor) -> String {
        let today = u32::try_from(self.clock.unix_seconds() / DAY).unwrap_or(u32::MAX);
        let mut content = vec![FORMAT, scope_tag(cursor.scope)];
        // Valid for 24 to 48 hours.
        content.extend_from_slice(&today.saturating_add(2).to_be_bytes());
        if cursor.scope == CacheScope::Private {
            content.extend_from_slice(&holder(owner.principal));
        }
        match &cursor.position {
            Position::After { key, upstream } => {
                content.push(b'k');
                content.extend_from_slice(upstream.as_bytes());
                content.push(0);
                content.extend_from_slice(key.as_bytes());
            }
            Position::Upstream(text) => {
                content.push(b'u');
                content.extend_from_slice(text.as_bytes());
            }
        }
        let tenant = &owner.plan.tenant;
        self.sealer
            .seal_deterministic(Purpose::CURSOR, tenant, &bound_to(owner), &content)
    }

    /// Opens a cursor for whoever presents it.
    ///
    /// # Errors
    /// `-32602` with one wording, whatever is wrong: another tenant's, server's or list's, somebody
    /// else's, expired, forged.
    pub fn open(&self, owner: Owner<'_>, text: &str) -> Result<Cursor, RpcError> {
        self.sealer
            .open(Purpose::CURSOR, &owner.plan.tenant, &bound_to(owner), text)
            .ok()
            .and_then(|content| self.read(owner.principal, &content))
            .ok_or_else(invalid)
    }

    fn read(&self, principal: &Principal, content: &[u8]) -> Option<Cursor> {
        let ([FORMAT, scope], rest) = content.split_first_chunk::<2>()? else {
            return None;
        };
        let (expiry, rest) = rest.split_first_chunk::<4>()?;
        if self.clock.unix_seconds() / DAY >= u64::from(u32::from_be_bytes(*expiry)) {
            return None;
        }
        let (scope, rest) = match scope {
            b'p' => {
                let (whose, rest) = rest.split_first_chunk::<HOLDER_BYTES>()?;
                (*whose == holder(principal)).then_some((CacheScope::Private, rest))?
            }
            b'u' => (CacheScope::Public, rest),
            _ => return None,
        };
        let (mode, rest) = rest.split_first()?;
        let text = std::str::from_utf8(rest).ok()?;
        let position = match mode {
            b'k' => {
                let (upstream, key) = text.split_once('\0')?;
                Position::After {
                    key: key.to_owned(),
                    upstream: upstream.to_owned(),
                }
            }
            b'u' => Position::Upstream(text.to_owned()),
            _ => return None,
        };
        Some(Cursor { scope, position })
    }
}

/// The error of a cursor that is not one (PAG-02).
pub fn invalid() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "invalid or expired cursor")
}

fn bound_to(owner: Owner<'_>) -> Vec<u8> {
    let mut bound = vec![owner.kind.tag()];
    bound.extend_from_slice(owner.plan.server.as_str().as_bytes());
    bound
}

fn scope_tag(scope: CacheScope) -> u8 {
    match scope {
        CacheScope::Private => b'p',
        CacheScope::Public => b'u',
    }
}

fn holder(principal: &Principal) -> [u8; HOLDER_BYTES] {
    let hash = digest(&SHA256, principal.binding().as_bytes());
    hash.as_ref()
        .first_chunk()
        .copied()
        .expect("SHA-256 is longer than 16 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{plan, principal};
    use proptest::prelude::*;
    use vestibule_store::Keyring;
    use vestibule_terms::clock::ManualClock;

    fn cursors() -> (Cursors, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(1_900_000_000_000));
        let sealer = Sealer::new(Keyring::generate());
        (
            Cursors::new(sealer, Arc::clone(&clock) as Arc<dyn Clock>),
            clock,
        )
    }

    fn upstream(text: &str, scope: CacheScope) -> Cursor {
        Cursor {
            scope,
            position: Position::Upstream(text.to_owned()),
        }
    }

    /// PAG-02, XT-536: kind, server, tenant and, when private, the caller are part of the cursor.
    #[test]
    fn pag_02_a_cursor_fits_one_list_only() {
        let (cursors, _) = cursors();
        let (plan_a, me) = (plan("t", "s", &["a"]), principal("t", "me"));
        let mine = Owner {
            plan: &plan_a,
            principal: &me,
            kind: Kind::Tools,
        };
        let text = cursors.seal(mine, &upstream("", CacheScope::Private));
        assert_eq!(
            cursors.open(mine, &text).unwrap(),
            upstream("", CacheScope::Private)
        );
        let (plan_b, plan_c) = (plan("t", "other", &["a"]), plan("u", "s", &["a"]));
        let you = principal("t", "you");
        for foreign in [
            Owner {
                kind: Kind::Prompts,
                ..mine
            },
            Owner {
                plan: &plan_b,
                ..mine
            },
            Owner {
                plan: &plan_c,
                ..mine
            },
            Owner {
                principal: &you,
                ..mine
            },
        ] {
            assert_eq!(cursors.open(foreign, &text), Err(invalid()));
        }
        assert_eq!(cursors.open(mine, "x"), Err(invalid()));
    }

    /// XT-514: a public page has one cursor that works for everybody, and always the same.
    #[test]
    fn xt_514_public_cursors_are_shared_and_stable() {
        let (cursors, clock) = cursors();
        let (plan, me, you) = (
            plan("t", "s", &["a"]),
            principal("t", "me"),
            principal("t", "you"),
        );
        let owner = |principal| Owner {
            plan: &plan,
            principal,
            kind: Kind::Tools,
        };
        let text = cursors.seal(owner(&me), &upstream("x", CacheScope::Public));
        clock.advance(1000);
        assert_eq!(
            cursors.seal(owner(&you), &upstream("x", CacheScope::Public)),
            text
        );
        assert!(cursors.open(owner(&you), &text).is_ok());
    }

    #[test]
    fn pag_02_cursors_live_one_day_and_at_most_two() {
        let (cursors, clock) = cursors();
        let (plan, me) = (plan("t", "s", &["a"]), principal("t", "me"));
        let owner = Owner {
            plan: &plan,
            principal: &me,
            kind: Kind::Tools,
        };
        let text = cursors.seal(owner, &upstream("x", CacheScope::Public));
        clock.advance(DAY * 1000);
        assert!(cursors.open(owner, &text).is_ok());
        clock.advance(DAY * 1000);
        assert!(cursors.open(owner, &text).is_err());
    }

    proptest! {
        #[test]
        fn cursors_round_trip(
            key in "\\PC{0,40}\u{0}?[a-z]{0,3}", name in "[a-z][a-z0-9-]{0,5}", keyset: bool, private: bool
        ) {
            let (cursors, _) = cursors();
            let (plan, me) = (plan("t", "s", &["a"]), principal("t", "me"));
            let owner = Owner { plan: &plan, principal: &me, kind: Kind::Resources };
            let scope = if private { CacheScope::Private } else { CacheScope::Public };
            let position = if keyset {
                Position::After { key, upstream: name }
            } else {
                Position::Upstream(key)
            };
            let cursor = Cursor { scope, position };
            prop_assert_eq!(cursors.open(owner, &cursors.seal(owner, &cursor)), Ok(cursor));
        }
    }
}
