use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use super::*;

fn tenant(text: &str) -> TenantId {
    TenantId::new(text).unwrap()
}

fn key(id: &str, byte: u8) -> (String, Secret<Vec<u8>>) {
    (id.to_owned(), Secret::new(vec![byte; 32]))
}

fn sealer() -> Sealer {
    Sealer::new(Keyring::new(vec![key("k1", 7)]).unwrap())
}

#[test]
fn keyrings_refuse_what_would_not_be_safe_or_unambiguous() {
    assert_eq!(Keyring::new(vec![]).unwrap_err(), KeyringError::Empty);
    for bad in ["", "k.1", "ninechars", "k 1", "ключ"] {
        let error = Keyring::new(vec![key(bad, 1)]).unwrap_err();
        assert_eq!(error, KeyringError::Id(bad.to_owned()));
    }
    let twice = Keyring::new(vec![key("a", 1), key("a", 2)]).unwrap_err();
    assert_eq!(twice, KeyringError::Repeated("a".to_owned()));
    let short = Keyring::new(vec![("a".to_owned(), Secret::new(vec![0; 31]))]).unwrap_err();
    assert_eq!(
        short,
        KeyringError::Length {
            id: "a".to_owned(),
            actual: 31
        }
    );
}

/// T60, T69: key material is in no debug output.
#[test]
fn t60_debug_shows_key_ids_and_nothing_else() {
    let sealer = sealer();
    assert_eq!(format!("{sealer:?}"), r#"Sealer { keys: ["k1"] }"#);
    let mac_key = sealer.mac_key(Purpose::CURSOR, &tenant("t"));
    assert_eq!(format!("{mac_key:?}"), "MacKey(…)");
}

/// XT-536: what one tenant or purpose sealed is refused under another.
#[test]
fn xt_536_handles_open_only_under_their_tenant_purpose_and_context() {
    let sealer = sealer();
    let acme = tenant("acme");
    for text in [
        sealer.seal(Purpose::CURSOR, &acme, b"tools", b"page 2"),
        sealer.seal_deterministic(Purpose::CURSOR, &acme, b"tools", b"page 2"),
    ] {
        let open =
            |purpose, tenant: &TenantId, aad: &[u8]| sealer.open(purpose, tenant, aad, &text);
        assert_eq!(open(Purpose::CURSOR, &acme, b"tools").unwrap(), b"page 2");
        assert_eq!(
            open(Purpose::CURSOR, &tenant("evil"), b"tools"),
            Err(SealError)
        );
        assert_eq!(
            open(Purpose::REQUEST_STATE, &acme, b"tools"),
            Err(SealError)
        );
        assert_eq!(open(Purpose::CURSOR, &acme, b"prompts"), Err(SealError));
    }
}

/// XT-514: the same page gives the same cursor; XT-046: old keys still open, removed ones do not.
#[test]
fn xt_514_deterministic_sealing_repeats_and_random_sealing_does_not() {
    let sealer = sealer();
    let acme = tenant("acme");
    let fixed = |content: &[u8]| sealer.seal_deterministic(Purpose::CURSOR, &acme, b"", content);
    assert_eq!(fixed(b"page"), fixed(b"page"));
    assert_ne!(fixed(b"page"), fixed(b"pagf"));
    let random = || sealer.seal(Purpose::CURSOR, &acme, b"", b"page");
    assert_ne!(random(), random());
}

#[test]
fn xt_046_rotated_keys_open_until_they_are_removed() {
    let sealer = sealer();
    let acme = tenant("acme");
    let old = sealer.seal(Purpose::REQUEST_STATE, &acme, b"", b"state");
    assert!(old.starts_with("1k1."));
    sealer.rotate(Keyring::new(vec![key("k2", 8), key("k1", 7)]).unwrap());
    assert_eq!(
        sealer
            .open(Purpose::REQUEST_STATE, &acme, b"", &old)
            .unwrap(),
        b"state"
    );
    assert!(
        sealer
            .seal(Purpose::REQUEST_STATE, &acme, b"", b"")
            .starts_with("1k2.")
    );
    sealer.rotate(Keyring::new(vec![key("k2", 8)]).unwrap());
    assert_eq!(
        sealer.open(Purpose::REQUEST_STATE, &acme, b"", &old),
        Err(SealError)
    );
}

#[test]
fn a_key_of_an_old_name_and_new_material_opens_nothing_old() {
    let sealer = sealer();
    let acme = tenant("acme");
    let old = sealer.seal(Purpose::CURSOR, &acme, b"", b"x");
    sealer.rotate(Keyring::new(vec![key("k1", 9)]).unwrap());
    assert_eq!(
        sealer.open(Purpose::CURSOR, &acme, b"", &old),
        Err(SealError)
    );
}

/// Case 17: part boundaries are authenticated.
#[test]
fn case_17_parts_of_a_mac_do_not_run_together() {
    let sealer = sealer();
    let acme = tenant("acme");
    let mac = |parts: &[&[u8]]| sealer.mac(Purpose::SESSION_ID, &acme, parts);
    assert_ne!(mac(&[b"ab", b"c"]), mac(&[b"a", b"bc"]));
    assert_ne!(mac(&[b"ab"]), mac(&[b"ab", b""]));
    assert_ne!(mac(&[]), mac(&[b""]));
}

#[test]
fn tags_shorter_than_96_bits_are_never_accepted() {
    let sealer = sealer();
    let acme = tenant("acme");
    let (key_id, tag) = sealer.sign(Purpose::EVENT_ID, &acme, &[b"x"]);
    let verify = |key: &str, tag: &[u8]| sealer.verify(Purpose::EVENT_ID, &acme, key, &[b"x"], tag);
    assert_eq!(verify(&key_id, &tag), Verdict::Valid);
    assert_eq!(verify(&key_id, &tag[..12]), Verdict::Valid);
    assert_eq!(verify(&key_id, &tag[..11]), Verdict::Forged);
    assert_eq!(verify(&key_id, &[]), Verdict::Forged);
    assert_eq!(verify(&key_id, &[tag, tag].concat()), Verdict::Forged);
    assert_eq!(verify("gone", &tag), Verdict::UnknownKey);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn t45_what_was_sealed_opens_and_any_changed_bit_does_not(
        content in proptest::collection::vec(any::<u8>(), 0..200),
        aad in proptest::collection::vec(any::<u8>(), 0..40),
        at in any::<proptest::sample::Index>(),
        bit in 0..7_u8,
    ) {
        let sealer = sealer();
        let acme = tenant("acme");
        let text = sealer.seal(Purpose::REQUEST_STATE, &acme, &aad, &content);
        prop_assert_eq!(sealer.open(Purpose::REQUEST_STATE, &acme, &aad, &text).unwrap(), content);
        let mut changed = text.into_bytes();
        let index = at.index(changed.len());
        changed[index] ^= 1 << bit;
        let changed = String::from_utf8(changed).unwrap();
        prop_assert!(sealer.open(Purpose::REQUEST_STATE, &acme, &aad, &changed).is_err());
    }

    #[test]
    fn t45_garbage_never_opens_and_never_panics(text in ".{0,120}") {
        let opened = sealer().open(Purpose::CURSOR, &tenant("acme"), b"", &text);
        prop_assert_eq!(opened, Err(SealError));
    }
}
