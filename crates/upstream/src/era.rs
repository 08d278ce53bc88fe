//! What is remembered of one upstream: its era, and what it said of itself.
//!
//! The two age differently: the era is asked for again after a day (after five minutes when silence
//! or a page of some proxy spoke for it), what a stateless upstream said of itself when it says so.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;
use vestibule_exchange::Profile;
use vestibule_frame::{Frame, json};
use vestibule_terms::{Era, Revision};

use crate::ear;
use crate::fault::Fault;
use crate::flight::Flight;
use crate::legacy::handshake;

/// How long an era is believed (VER-11).
const BELIEF: Duration = Duration::from_secs(24 * 3600);
/// How long when hardly anything spoke for it.
const WEAK_BELIEF: Duration = Duration::from_secs(300);
/// Bounds of the lifetime of a discover result.
const LIFETIME: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));

/// What is known of an upstream.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) era: Era,
    /// What it said of itself, once it has.
    pub(crate) profile: Option<Arc<Profile>>,
    profile_until: Instant,
    until: Instant,
}

/// The memory of one upstream.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    known: ArcSwapOption<Known>,
    /// One probe at a time.
    pub(crate) probing: Flight<Result<Arc<Known>, Fault>>,
    /// One look at what it is at a time.
    pub(crate) looking: Flight<Result<Arc<Profile>, Fault>>,
}

// === impl Known ===

impl Known {
    /// Stateless, by an answer to `server/discover` that may be an error.
    pub(crate) fn discovered(frame: &Frame, revision: Revision, over_http: bool) -> Self {
        let now = Instant::now();
        if frame.result().is_none() {
            return Self {
                era: Era::Modern,
                profile: None,
                profile_until: now,
                until: now + BELIEF,
            };
        }
        let profile = handshake::profile(frame, revision, over_http);
        Self {
            era: Era::Modern,
            profile: Some(Arc::new(profile)),
            profile_until: now + lifetime(frame),
            until: now + BELIEF,
        }
    }

    /// With a handshake.
    pub(crate) fn legacy(profile: Arc<Profile>, weak: bool) -> Self {
        let until = Instant::now() + if weak { WEAK_BELIEF } else { BELIEF };
        Self {
            era: Era::Legacy,
            profile: Some(profile),
            profile_until: until,
            until,
        }
    }

    /// As the configuration says: never asked about.
    pub(crate) fn pinned(era: Era) -> Self {
        let now = Instant::now();
        Self {
            era,
            profile: None,
            profile_until: now,
            until: now + BELIEF,
        }
    }

    /// Whether the era should be asked for again.
    pub(crate) fn is_stale(&self) -> bool {
        Instant::now() >= self.until
    }

    /// What it said of itself, while that counts.
    pub(crate) fn fresh_profile(&self) -> Option<Arc<Profile>> {
        self.profile
            .clone()
            .filter(|_| Instant::now() < self.profile_until)
    }
}

/// `ttlMs`, within bounds.
fn lifetime(frame: &Frame) -> Duration {
    let ttl = ear::result_member(frame, "ttlMs")
        .as_deref()
        .and_then(json::integer);
    let ttl = Duration::from_millis(ttl.and_then(|ttl| ttl.try_into().ok()).unwrap_or(0));
    ttl.clamp(LIFETIME.0, LIFETIME.1)
}

// === impl Memory ===

impl Memory {
    /// What is known, stale or not.
    pub(crate) fn known(&self) -> Option<Arc<Known>> {
        self.known.load_full()
    }

    pub(crate) fn set(&self, known: Known) -> Arc<Known> {
        let known = Arc::new(known);
        self.known.store(Some(Arc::clone(&known)));
        known
    }

    /// A session was opened: its answer is the newest word, the era's age stays.
    pub(crate) fn learnt(&self, profile: &Arc<Profile>) {
        let mut known = match self.known() {
            Some(known) if known.era == Era::Legacy => (*known).clone(),
            Some(_) => return,
            None => Known::pinned(Era::Legacy),
        };
        known.profile = Some(Arc::clone(profile));
        known.profile_until = known.until;
        self.set(known);
    }

    /// What was known does not hold any more.
    pub(crate) fn forget(&self) {
        self.known.store(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::frame;
    use tokio::time::advance;

    fn discovered(ttl: &str) -> Known {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"supportedVersions":["2026-07-28"],"capabilities":{{}},"ttlMs":{ttl}}}}}"#
        );
        Known::discovered(&frame(&text), Revision::R2026_07_28, true)
    }

    /// VER-11: an era is believed for a day, weak evidence for five minutes.
    #[tokio::test(start_paused = true)]
    async fn ver_11_weak_evidence_is_believed_for_five_minutes_only() {
        let profile = discovered("0").profile.unwrap();
        let (weak, strong) = (
            Known::legacy(Arc::clone(&profile), true),
            Known::legacy(profile, false),
        );
        advance(WEAK_BELIEF - Duration::from_secs(1)).await;
        assert!(!weak.is_stale());
        advance(Duration::from_secs(1)).await;
        assert!(weak.is_stale() && !strong.is_stale());
        advance(BELIEF).await;
        assert!(strong.is_stale());
    }

    /// LIF-14: `ttlMs` counts, but never for less than a second or more than a day.
    #[tokio::test(start_paused = true)]
    async fn lif_14_the_lifetime_of_a_profile_has_bounds() {
        let short = ["0", "-5", "1.5", "null", "\"x\""].map(discovered);
        let (long, minute) = (discovered("999999999999"), discovered("60000"));
        assert!(short.iter().all(|known| known.fresh_profile().is_some()));
        advance(LIFETIME.0).await;
        assert!(short.iter().all(|known| known.fresh_profile().is_none()));
        assert!(minute.fresh_profile().is_some());
        advance(Duration::from_secs(60)).await;
        assert!(minute.fresh_profile().is_none() && !minute.is_stale());
        advance(LIFETIME.1).await;
        assert!(long.fresh_profile().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_was_opened_again_does_not_make_its_era_younger() {
        let memory = Memory::default();
        let profile = discovered("0").profile.unwrap();
        memory.set(Known::legacy(Arc::clone(&profile), true));
        advance(WEAK_BELIEF).await;
        memory.learnt(&profile);
        assert!(memory.known().unwrap().is_stale());
        memory.set(Known::pinned(Era::Modern));
        memory.learnt(&profile);
        assert_eq!(memory.known().unwrap().era, Era::Modern);
    }
}
