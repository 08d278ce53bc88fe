//! Whether the addresses we limit by look like one proxy's instead of the clients': no proxy is
//! trusted, and nearly all requests come from one private address. Every limit by address then falls
//! on all clients together, so somebody should be told.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One request in so many is looked at.
const SAMPLE: u64 = 16;
/// Fewer samples say nothing.
const MIN_SAMPLES: u64 = 64;

/// Samples since the last judgement.
#[derive(Debug)]
pub(super) struct Suspicion {
    /// Whether no proxy is trusted; otherwise there is nothing to suspect.
    armed: bool,
    requests: AtomicU64,
    window: Mutex<Window>,
    suspected: AtomicBool,
}

#[derive(Debug, Default)]
struct Window {
    samples: u64,
    /// The address that may have the majority, its lead over the others, and how often it was seen
    /// since it came up.
    candidate: Option<IpAddr>,
    lead: u64,
    hits: u64,
}

impl Suspicion {
    pub(super) fn new(armed: bool) -> Self {
        Self {
            armed,
            requests: AtomicU64::new(0),
            window: Mutex::default(),
            suspected: AtomicBool::new(false),
        }
    }

    /// Notes where one request came from.
    pub(super) fn observe(&self, address: IpAddr) {
        let sampled = self.armed
            && self
                .requests
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(SAMPLE);
        if let (true, Ok(mut window)) = (sampled, self.window.lock()) {
            window.add(address);
        }
    }

    /// Judges the window and begins the next; absent when there is nothing to judge.
    pub(super) fn judge(&self) -> Option<bool> {
        if !self.armed {
            return None;
        }
        let window = std::mem::take(&mut *self.window.lock().ok()?);
        if window.samples < MIN_SAMPLES {
            return None;
        }
        let suspect = window.candidate.is_some_and(is_private)
            && window.hits.saturating_mul(10) > window.samples.saturating_mul(9);
        let before = self.suspected.swap(suspect, Ordering::Relaxed);
        if let (true, false, Some(address)) = (suspect, before, window.candidate) {
            tracing::warn!(
                client.address = %address,
                "over 90 % of requests come from one private address and no proxy is trusted: set listen.proxies"
            );
        }
        Some(suspect)
    }
}

impl Window {
    fn add(&mut self, address: IpAddr) {
        self.samples += 1;
        if self.candidate == Some(address) {
            self.lead += 1;
            self.hits += 1;
        } else if self.lead == 0 {
            self.candidate = Some(address);
            self.lead = 1;
            self.hits = 1;
        } else {
            self.lead -= 1;
        }
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(armed: bool, many: &str, few: &str) -> Option<bool> {
        let suspicion = Suspicion::new(armed);
        for number in 0..SAMPLE * 200 {
            let few_now = (number / SAMPLE).is_multiple_of(20);
            let address = if few_now { few } else { many };
            suspicion.observe(address.parse().unwrap());
        }
        suspicion.judge()
    }

    #[test]
    fn one_private_address_with_nearly_all_requests_is_suspect() {
        assert_eq!(judged(true, "10.0.0.1", "192.0.2.1"), Some(true));
        assert_eq!(judged(true, "fd00::1", "192.0.2.1"), Some(true));
    }

    #[test]
    fn public_addresses_trusted_proxies_and_few_requests_are_not() {
        assert_eq!(judged(true, "192.0.2.1", "10.0.0.1"), Some(false));
        assert_eq!(judged(false, "10.0.0.1", "192.0.2.1"), None);
        let quiet = Suspicion::new(true);
        quiet.observe("10.0.0.1".parse().unwrap());
        assert_eq!(quiet.judge(), None);
    }

    #[test]
    fn many_private_addresses_are_clients_of_their_own() {
        let suspicion = Suspicion::new(true);
        for number in 0..SAMPLE * 200 {
            let last = u8::try_from(number / SAMPLE % 100).unwrap();
            suspicion.observe(IpAddr::from([10, 0, 0, last]));
        }
        assert_eq!(suspicion.judge(), Some(false));
    }
}
