use proptest::prelude::{
    ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_assert_ne, proptest,
};
use vestibule_store::Keyring;
use vestibule_terms::{Secret, SessionId, TenantId};

use super::*;

fn keyring(keys: &[(&str, u8)]) -> Keyring {
    let keys = keys
        .iter()
        .map(|(id, byte)| ((*id).to_owned(), Secret::new(vec![*byte; 32])))
        .collect();
    Keyring::new(keys).unwrap()
}

fn session(tenant: &str, principal: &str, id: &str) -> SessionKey {
    SessionKey::new(
        &TenantId::new(tenant).unwrap(),
        principal,
        &SessionId::new(id),
    )
}

fn mine() -> SessionKey {
    session("acme", "alice", "s1")
}

fn ids() -> EventIds {
    EventIds::new(Sealer::new(keyring(&[("k1", 1)])))
}

fn positions() -> impl Strategy<Value = Position> {
    let seq = proptest::prop_oneof![any::<u64>(), 0..300_u64, proptest::strategy::Just(u64::MAX)];
    (any::<[u8; 16]>(), any::<u32>(), seq, any::<[u8; 8]>()).prop_map(
        |(stream, epoch, seq, chain)| Position {
            stream: StreamId(stream),
            epoch,
            seq,
            chain,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// EL-4: the format, at its longest, and what went in comes out.
    #[test]
    fn res_01_ids_are_short_plain_text_and_say_where_they_were_minted(position in positions()) {
        let ids = EventIds::new(Sealer::new(keyring(&[("longest8", 1)])));
        let id = ids.mint(&mine(), &position);
        prop_assert!(id.as_str().len() <= MAX_LENGTH);
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        prop_assert!(id.as_str().bytes().all(plain));
        prop_assert!(id.as_str().starts_with("1longest8."));
        prop_assert_eq!(ids.verify(&mine(), id.as_str()), Ok(Verified::Ours(position)));
        prop_assert_eq!(ids.mint(&mine(), &position), id);
    }

    /// T49: no changed bit passes, nor does a text that is longer or shorter.
    #[test]
    fn t49_no_changed_bit_verifies(
        position in positions(),
        at in any::<proptest::sample::Index>(),
        bit in 0..7_u8,
    ) {
        let ids = ids();
        let text = ids.mint(&mine(), &position).as_str().to_owned();
        let mut changed = text.clone().into_bytes();
        let index = at.index(changed.len());
        changed[index] ^= 1 << bit;
        let changed = String::from_utf8(changed).unwrap();
        let verified = ids.verify(&mine(), &changed);
        let other_key = changed.strip_prefix("1k1.").is_none();
        prop_assert!(
            verified == Err(ForeignEventId) || (other_key && verified == Ok(Verified::KeyGone)),
            "{verified:?}"
        );
        for other in [format!("{text}A"), format!("{text}="), format!(" {text}")] {
            prop_assert_eq!(ids.verify(&mine(), &other), Err(ForeignEventId));
        }
        let shorter = text.get(..text.len() - 1).unwrap();
        prop_assert_eq!(ids.verify(&mine(), shorter), Err(ForeignEventId));
    }

    /// T49: garbage is refused, never a panic.
    #[test]
    fn t49_garbage_is_foreign(text in "[ -~]{0,100}") {
        prop_assert_eq!(ids().verify(&mine(), &text), Err(ForeignEventId));
        let named = format!("1k1.{text}");
        prop_assert_eq!(ids().verify(&mine(), &named), Err(ForeignEventId));
    }

    /// A number has one encoding.
    #[test]
    fn numbers_decode_only_from_their_shortest_form(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
        if let Some(seq) = decode_seq(&bytes) {
            let position = Position { stream: StreamId([0; 16]), epoch: 0, seq, chain: [0; 8] };
            let encoded = encode(&position);
            prop_assert_eq!(&encoded[20..encoded.len() - 8], &bytes[..]);
        }
    }

    /// The kind of a stream can be read off its id, and ids do not repeat.
    #[test]
    fn res_02_stream_ids_carry_their_kind(standalone in any::<bool>()) {
        prop_assert_eq!(StreamId::mint(standalone).is_standalone(), standalone);
        prop_assert_ne!(StreamId::mint(standalone), StreamId::mint(standalone));
    }
}

/// T49, T50, case 121: an id of another session, principal or tenant is foreign, though its stream
/// may bear the same name.
#[test]
fn case_121_ids_of_other_sessions_are_foreign() {
    let ids = ids();
    let position = Position {
        stream: StreamId::mint(false),
        epoch: 1,
        seq: 1,
        chain: [0; 8],
    };
    let id = ids.mint(&mine(), &position);
    for other in [
        session("acme", "alice", "s2"),
        session("acme", "bob", "s1"),
        session("evil", "alice", "s1"),
        session("acme", "alices", "1"),
    ] {
        assert_eq!(ids.verify(&other, id.as_str()), Err(ForeignEventId));
    }
}

/// A key that is configured still passes, one that has rotated out is a gap, not a forgery.
#[test]
fn xt_046_ids_of_old_keys_pass_and_those_of_removed_keys_are_gaps() {
    let sealer = Sealer::new(keyring(&[("k1", 1)]));
    let ids = EventIds::new(sealer.clone());
    let position = Position {
        stream: StreamId::mint(true),
        epoch: 1,
        seq: 7,
        chain: [3; 8],
    };
    let id = ids.mint(&mine(), &position);
    sealer.rotate(keyring(&[("k2", 2), ("k1", 1)]));
    assert_eq!(
        ids.verify(&mine(), id.as_str()),
        Ok(Verified::Ours(position))
    );
    sealer.rotate(keyring(&[("k2", 2)]));
    assert_eq!(ids.verify(&mine(), id.as_str()), Ok(Verified::KeyGone));
    sealer.rotate(keyring(&[("k1", 9)]));
    assert_eq!(ids.verify(&mine(), id.as_str()), Err(ForeignEventId));
}
