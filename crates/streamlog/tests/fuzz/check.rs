//! Event ids under attack (T49): no text but an id that was minted for the session verifies, a place
//! has one id, and a signed text that is malformed is as foreign as any other.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use vestibule_store::{Keyring, Purpose, Sealer, SessionKey};
use vestibule_streamlog::{EventIds, ForeignEventId, Verified};
use vestibule_terms::{Secret, SessionId, TenantId};

const TAG_BYTES: usize = 12;

fn session(tenant: &str, principal: &str, id: &str) -> SessionKey {
    let tenant = TenantId::new(tenant).expect("a tenant id");
    SessionKey::new(&tenant, principal, &SessionId::new(id))
}

fn sealer(byte: u8) -> Sealer {
    let keys = vec![("k1".to_owned(), Secret::new(vec![byte; 32]))];
    Sealer::new(Keyring::new(keys).expect("a keyring"))
}

/// The first byte says what becomes of the rest: a text as it is, or the content of an id that is
/// signed with the right key.
pub(crate) fn check(data: &[u8]) {
    let Some((how, rest)) = data.split_first() else {
        return;
    };
    let sealer = sealer(1);
    let ids = EventIds::new(sealer.clone());
    let mine = session("acme", "alice", "s1");
    if how % 2 == 0 {
        if let Ok(text) = std::str::from_utf8(rest) {
            unsigned(&ids, &mine, text);
        }
    } else {
        signed(&sealer, &ids, &mine, rest);
    }
}

/// Nobody guesses a tag.
fn unsigned(ids: &EventIds, mine: &SessionKey, text: &str) {
    match ids.verify(mine, text) {
        Err(ForeignEventId) => {}
        Ok(Verified::KeyGone) => {
            assert!(text.len() <= 80 && text.starts_with('1') && !text.starts_with("1k1."));
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
            assert!(text.bytes().all(plain));
        }
        Ok(Verified::Ours(position)) => {
            assert_eq!(ids.mint(mine, &position).as_str(), text, "{position:?}");
        }
    }
}

/// Whatever is signed, only the one form of a place is an id of it.
fn signed(sealer: &Sealer, ids: &EventIds, mine: &SessionKey, fields: &[u8]) {
    let parts = [
        b"evid",
        mine.tenant().as_str().as_bytes(),
        mine.principal().as_bytes(),
        mine.id().expose().as_bytes(),
        fields,
    ];
    let (key, tag) = sealer.sign(Purpose::EVENT_ID, mine.tenant(), &parts);
    let tag = tag.get(..TAG_BYTES).expect("a tag is longer");
    let body = URL_SAFE_NO_PAD.encode([fields, tag].concat());
    let text = format!("1{key}.{body}");
    let Ok(verified) = ids.verify(mine, &text) else {
        assert!(!(30..=37).contains(&fields.len()) || !one_number(fields));
        return;
    };
    let Verified::Ours(position) = verified else {
        panic!("the key is there");
    };
    assert_eq!(ids.mint(mine, &position).as_str(), text);
    for other in [
        session("acme", "alice", "s2"),
        session("acme", "bob", "s1"),
        session("evil", "alice", "s1"),
        session("acme", "alices", "1"),
    ] {
        assert_eq!(ids.verify(&other, &text), Err(ForeignEventId));
    }
    assert_eq!(
        EventIds::new(self::sealer(2)).verify(mine, &text),
        Err(ForeignEventId)
    );
    let mut last = text.clone();
    let changed = if last.pop() == Some('A') { 'B' } else { 'A' };
    assert_eq!(ids.verify(mine, &last), Err(ForeignEventId));
    last.push(changed);
    assert_eq!(ids.verify(mine, &last), Err(ForeignEventId));
}

/// Whether the number between the epoch and the chain is one in its shortest form.
fn one_number(fields: &[u8]) -> bool {
    let bytes = fields.get(20..fields.len() - 8).unwrap_or_default();
    let Some((last, more)) = bytes.split_last() else {
        return false;
    };
    let shaped = *last < 0x80 && more.iter().all(|byte| *byte >= 0x80);
    shaped && (*last != 0 || more.is_empty())
}
