use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use vestibule_store::{Keyring, Purpose, Sealer};
use vestibule_terms::TenantId;

use super::*;

fn key() -> MacKey {
    let sealer = Sealer::new(Keyring::generate());
    sealer.mac_key(Purpose::EVENT_CHAIN, &TenantId::new("acme").unwrap())
}

fn payload(size: usize) -> Bytes {
    Bytes::from(vec![b'x'; size])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// EL-5, EL-19: whatever was trimmed, a position is valid exactly when all after it is kept,
    /// and its chain is needed for that.
    #[test]
    fn res_05_positions_are_valid_while_everything_after_them_is_kept(
        sizes in proptest::collection::vec(0..300_usize, 0..40),
        max_events in 1..20_usize,
        max_bytes in 200..4000_usize,
    ) {
        let mut ring = Ring::new(key(), b"origin");
        let mut chains = vec![ring.top_chain()];
        for (turn, size) in sizes.iter().enumerate() {
            ring.push(payload(*size), turn as u64);
            ring.fit(max_events, max_bytes);
            chains.push(ring.top_chain());
            ring.check_invariants();
            prop_assert!(ring.len() <= max_events);
            prop_assert!(ring.bytes() <= max_bytes || ring.len() == 1);
        }
        for (seq, chain) in chains.iter().enumerate() {
            let seq = seq as u64;
            let kept = seq + 1 >= ring.first();
            let expected = if kept { Standing::Valid } else { Standing::Trimmed };
            prop_assert_eq!(ring.standing(seq, *chain), expected);
            if kept {
                let mut other = *chain;
                other[0] ^= 1;
                prop_assert_eq!(ring.standing(seq, other), Standing::Diverged);
            }
        }
        prop_assert_eq!(ring.standing(ring.top() + 1, ring.top_chain()), Standing::Diverged);
    }

    /// EL-21: what a reader lacks is counted beyond its first event.
    #[test]
    fn sse_17_lag_counts_events_and_bytes_beyond_the_first(
        sizes in proptest::collection::vec(0..300_usize, 1..30),
        trimmed in 0..5_usize,
        cursor in any::<proptest::sample::Index>(),
    ) {
        let mut ring = Ring::new(key(), b"origin");
        for size in &sizes {
            ring.push(payload(*size), 0);
        }
        for _ in 0..trimmed.min(sizes.len() - 1) {
            ring.trim_one();
        }
        let cursor = cursor.index(sizes.len() + 1);
        let from = cursor.max(trimmed.min(sizes.len() - 1));
        let missing = &sizes[from..];
        let beyond: usize = missing.iter().skip(1).map(|size| Ring::cost(*size)).sum();
        prop_assert_eq!(ring.behind(cursor as u64, 0), (missing.len(), beyond));
    }
}

/// EL-5: the order and the content of the past are in the chain.
#[test]
fn res_07_chains_tell_histories_apart() {
    let key = key();
    let chain = |origin: &[u8], payloads: &[&'static [u8]]| {
        let mut ring = Ring::new(key.clone(), origin);
        for payload in payloads {
            ring.push(Bytes::from_static(payload), 0);
        }
        ring.top_chain()
    };
    assert_eq!(chain(b"o", &[b"a", b"b"]), chain(b"o", &[b"a", b"b"]));
    assert_ne!(chain(b"o", &[b"a", b"b"]), chain(b"o", &[b"b", b"a"]));
    assert_ne!(chain(b"o", &[b"a", b"b"]), chain(b"o", &[b"x", b"b"]));
    assert_ne!(chain(b"o", &[b"a"]), chain(b"p", &[b"a"]));
    assert_ne!(chain(b"o", &[]), chain(b"p", &[]));
}

/// A client that has everything can prove it when nothing is kept any more.
#[test]
fn res_06_the_end_is_recognised_after_everything_was_dropped() {
    let mut ring = Ring::new(key(), b"o");
    let before = ring.top_chain();
    ring.push(payload(5), 1);
    let chain = ring.top_chain();
    ring.clear();
    ring.check_invariants();
    assert_eq!(
        (ring.first(), ring.bytes(), ring.behind(0, 0)),
        (2, 0, (0, 0))
    );
    assert_eq!(ring.standing(1, chain), Standing::Valid);
    assert_eq!(ring.standing(0, before), Standing::Trimmed);
    assert_eq!(ring.push(payload(1), 2), 2);
    assert_eq!(ring.standing(1, chain), Standing::Valid);
}

#[test]
fn small_events_do_not_keep_the_buffer_they_were_cut_from() {
    let buffer = payload(1024 * 1024);
    let slice = buffer.slice(10..20);
    let mut ring = Ring::new(key(), b"o");
    ring.push(slice, 1);
    assert!(buffer.is_unique());
}

/// EL-08, EL-21: what is on its way to the disk is not what a reader is behind with.
#[test]
fn el_08_a_reader_is_not_behind_with_what_it_cannot_read() {
    let mut ring = Ring::new(key(), b"o").on_disk();
    let cost = Ring::cost(1);
    ring.push(Bytes::from_static(b"a"), 1);
    ring.push(Bytes::from_static(b"b"), 2);
    assert_eq!(ring.behind(0, 0), (0, 0));
    assert_eq!(ring.unsettled(0), (2, 2 * cost, UNWRITTEN));
    ring.submitted(7);
    ring.push(Bytes::from_static(b"c"), 3);
    ring.submitted(8);
    assert_eq!((ring.behind(0, 6), ring.behind(0, 7)), ((0, 0), (2, cost)));
    assert_eq!(
        (ring.behind(1, 7), ring.behind(0, 8)),
        ((1, 0), (3, 2 * cost))
    );
    assert_eq!(ring.unsettled(7), (1, cost, 8));
    ring.trim_one();
    assert_eq!(
        (ring.behind(0, 7), ring.unsettled(0)),
        ((1, 0), (2, 2 * cost, 8))
    );
    ring.trim_one();
    ring.trim_one();
    assert_eq!((ring.behind(0, 8), ring.unsettled(0)), ((0, 0), (0, 0, 0)));
}
