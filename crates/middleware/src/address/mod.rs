//! The client's address, and how much one address may ask before anybody knows who it is.
//!
//! Two limits of different kind: a coarse rate of requests (`limits.address`, by `tower_governor`),
//! and a strict penalty for failed authentications ([`Penalties`], which the auth stage feeds). The
//! address is found by [`crate::proxies`] and becomes a fact
//! ([`crate::facts::ClientAddress`]); IPv6 counts by its
//! /64.
//!
//! The state is this process's; [`AddressGuard::sweep`] must be called now and then, or tables grow
//! with every address that ever called.

mod guard;
mod penalty;
mod service;
mod suspicion;

pub use guard::{AddressGuard, AddressLayer, AddressLimit, ClientKey};
pub use penalty::Penalties;
pub use service::{AddressFuture, AddressService};

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use axum::extract::ConnectInfo;
    use vestibule_metrics::Metrics;

    use super::*;
    use crate::facts::ClientAddress;
    use crate::plans::Rate;
    use crate::proxies::Proxies;
    use crate::testing::{Outcome, request, through};

    fn limit(count: u32, burst: u32) -> AddressLimit {
        AddressLimit {
            rate: Rate {
                count,
                per: Duration::from_secs(3600),
            },
            burst,
        }
    }

    fn guard(limit: Option<AddressLimit>) -> (AddressGuard, Metrics) {
        let metrics = Metrics::new("0", "0");
        let proxies = Proxies {
            trusted: vec!["10.0.0.0/8".parse().unwrap()],
            ..Proxies::default()
        };
        (AddressGuard::new(limit, proxies, metrics.clone()), metrics)
    }

    async fn send(guard: &AddressGuard, peer: &str, head: &[(&str, &str)]) -> Outcome {
        let mut request = request("POST", "/mcp", head);
        let peer: SocketAddr = peer.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        through(&guard.layer(), request).await
    }

    /// STA-23: an address over its rate is 429 with Retry-After, without an id; others are served.
    #[tokio::test]
    async fn sta_23_an_address_over_its_rate_is_429() {
        let (guard, metrics) = guard(Some(limit(1, 2)));
        for _ in 0..2 {
            assert_eq!(send(&guard, "192.0.2.1:1", &[]).await.status(), 200);
        }
        let outcome = send(&guard, "192.0.2.1:2", &[]).await;
        assert_eq!((outcome.status(), outcome.reason()), (429, Some("limited")));
        assert!(
            outcome
                .header("retry-after")
                .unwrap()
                .parse::<u64>()
                .unwrap()
                >= 1
        );
        assert_eq!(outcome.record.code(), Some(&-31005));
        assert_eq!(send(&guard, "192.0.2.2:1", &[]).await.status(), 200);
        let line = r#"vestibule_rate_limited_total{scope="address",tenant="_unknown"} 1"#;
        assert!(metrics.expose().contains(line));
    }

    /// Case 76: behind a trusted proxy every client has its own bucket, and a forged header from
    /// elsewhere makes no new one. IPv6 counts by /64.
    #[tokio::test]
    async fn case_76_buckets_are_the_clients_own() {
        let (guard, _) = guard(Some(limit(1, 1)));
        let via = |client| [("x-forwarded-for", client)];
        assert_eq!(
            send(&guard, "10.0.0.1:1", &via("192.0.2.1")).await.status(),
            200
        );
        assert_eq!(
            send(&guard, "10.0.0.1:1", &via("192.0.2.2")).await.status(),
            200
        );
        assert_eq!(
            send(&guard, "10.0.0.1:1", &via("192.0.2.2")).await.status(),
            429
        );
        assert_eq!(
            send(&guard, "198.51.100.1:1", &via("1.1.1.1"))
                .await
                .status(),
            200
        );
        assert_eq!(
            send(&guard, "198.51.100.1:1", &via("2.2.2.2"))
                .await
                .status(),
            429
        );
        assert_eq!(send(&guard, "[2001:db8::1]:1", &[]).await.status(), 200);
        assert_eq!(send(&guard, "[2001:db8::2]:1", &[]).await.status(), 429);
        assert_eq!(send(&guard, "[2001:db8:0:1::1]:1", &[]).await.status(), 200);
    }

    #[tokio::test]
    async fn the_address_is_a_fact_and_the_headers_about_it_are_gone() {
        let (guard, _) = guard(None);
        let head = [
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=1.1.1.1"),
        ];
        let outcome = send(&guard, "10.0.0.1:1", &head).await;
        let fact = outcome.seen.fact::<ClientAddress>().unwrap();
        assert_eq!(fact.0.to_string(), "192.0.2.1");
        assert!(outcome.seen.headers().is_empty());
    }

    #[tokio::test]
    async fn a_sweep_forgets_only_what_is_idle() {
        let (guard, _) = guard(Some(limit(1, 1)));
        assert_eq!(send(&guard, "192.0.2.1:1", &[]).await.status(), 200);
        guard.sweep();
        assert_eq!(send(&guard, "192.0.2.1:1", &[]).await.status(), 429);
    }
}
