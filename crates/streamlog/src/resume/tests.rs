use vestibule_store::{Keyring, Purpose, Sealer};
use vestibule_terms::TenantId;

use super::*;
use crate::event_id::StreamId;

/// A stream of three events of which `trimmed` are gone, and the chain at each number.
fn ring(trimmed: usize) -> (Ring, Vec<[u8; 8]>) {
    let sealer = Sealer::new(Keyring::generate());
    let key = sealer.mac_key(Purpose::EVENT_CHAIN, &TenantId::new("acme").unwrap());
    let mut ring = Ring::new(key, b"o");
    let mut chains = vec![ring.top_chain()];
    for turn in 0..3 {
        ring.push(Bytes::from_static(b"{}"), turn);
        chains.push(ring.top_chain());
    }
    for _ in 0..trimmed {
        ring.trim_one();
    }
    (ring, chains)
}

/// EL-13, row by row: stream kind, ended, requests known, events trimmed, the client's number.
#[test]
fn res_05_every_row_of_the_outcomes() {
    let post = false;
    let standalone = true;
    for (kind, ended, requests, trimmed, seq, expected) in [
        (post, false, true, 0, 0, Decision::Replay),
        (post, false, true, 0, 3, Decision::Replay),
        (post, false, true, 2, 2, Decision::Replay),
        (post, false, true, 3, 3, Decision::Replay),
        (post, true, true, 0, 1, Decision::Ending),
        (post, true, true, 2, 2, Decision::Ending),
        (post, true, true, 0, 3, Decision::Finished),
        (post, true, true, 3, 3, Decision::Finished),
        (post, true, true, 3, 2, Decision::LostPost),
        (post, false, true, 2, 1, Decision::LostPost),
        (post, false, false, 2, 1, Decision::Unknown),
        (standalone, false, false, 0, 1, Decision::Replay),
        (standalone, false, false, 3, 3, Decision::Replay),
        (
            standalone,
            false,
            false,
            2,
            1,
            Decision::StandaloneGap { after: 2 },
        ),
        (
            standalone,
            false,
            false,
            3,
            0,
            Decision::StandaloneGap { after: 3 },
        ),
    ] {
        let (ring, chains) = ring(trimmed);
        let position = Position {
            stream: StreamId::mint(kind),
            epoch: 1,
            seq,
            chain: chains[seq as usize],
        };
        let remembered = Remembered {
            epoch: 1,
            ring: &ring,
            ended,
            has_requests: requests,
        };
        let row = (kind, ended, requests, trimmed, seq);
        assert_eq!(decide(&position, Some(remembered)), expected, "{row:?}");
    }
}

#[test]
fn res_05_streams_nobody_remembers() {
    let position = |kind| Position {
        stream: StreamId::mint(kind),
        epoch: 1,
        seq: 1,
        chain: [0; 8],
    };
    assert_eq!(decide(&position(false), None), Decision::Unknown);
    assert_eq!(decide(&position(true), None), Decision::StandaloneGone);
}

/// EL-3, EL-5: an id of another life of the log, of another history or of the future is a loss.
#[test]
fn res_05_other_histories_are_losses() {
    let (ring, chains) = ring(0);
    let remembered = Remembered {
        epoch: 1,
        ring: &ring,
        ended: false,
        has_requests: true,
    };
    let at = |epoch, seq, chain| Position {
        stream: StreamId::mint(false),
        epoch,
        seq,
        chain,
    };
    for position in [
        at(2, 1, chains[1]),
        at(1, 1, chains[2]),
        at(1, 4, chains[3]),
        at(1, 3, [0; 8]),
    ] {
        assert_eq!(
            decide(&position, Some(remembered)),
            Decision::LostPost,
            "{position:?}"
        );
    }
}

/// EL-13, EL-5: a standalone stream whose store has lost a tail: what the client shares with it is
/// not sent again, what is behind its number is; of another life's stream it has nothing.
#[test]
fn res_05_a_rolled_back_standalone_stream_repeats_nothing() {
    let (trimmed, _) = ring(3);
    let (ring, chains) = ring(0);
    for (ring, epoch, seq, chain, expected) in [
        (&ring, 1, 9, [0; 8], 3),
        (&ring, 1, 3, [0; 8], 3),
        (&ring, 1, 2, [0; 8], 2),
        (&ring, 2, 2, chains[2], 0),
        (&trimmed, 1, 4, [0; 8], 3),
        (&trimmed, 2, 2, chains[2], 3),
    ] {
        let position = Position {
            stream: StreamId::mint(true),
            epoch,
            seq,
            chain,
        };
        let remembered = Remembered {
            epoch: 1,
            ring,
            ended: false,
            has_requests: false,
        };
        let gap = Decision::StandaloneGap { after: expected };
        assert_eq!(decide(&position, Some(remembered)), gap, "{position:?}");
    }
}

/// RES-06: what ends a client's reconnecting is 405, what is not its own is 400.
#[test]
fn res_06_statuses_and_labels_are_distinct() {
    let stream = || crate::StreamRef {
        session: vestibule_store::SessionKey::new(
            &TenantId::new("acme").unwrap(),
            "alice",
            &vestibule_terms::SessionId::new("s"),
        ),
        id: StreamId::mint(false),
    };
    let all = [
        (
            Resume::Replay {
                stream: stream(),
                after: 0,
            },
            200,
        ),
        (
            Resume::Ending {
                stream: stream(),
                after: 0,
            },
            200,
        ),
        (Resume::LostPost { requests: vec![] }, 200),
        (
            Resume::StandaloneGap {
                stream: stream(),
                after: 0,
            },
            200,
        ),
        (Resume::Finished, 405),
        (Resume::Unknown, 405),
        (Resume::Foreign, 400),
        (Resume::NoSession, 404),
    ];
    let labels: std::collections::HashSet<_> =
        all.iter().map(|(resume, _)| resume.label()).collect();
    assert_eq!(labels.len(), all.len());
    for (resume, status) in all {
        assert_eq!(resume.status(), status, "{resume:?}");
    }
}
