//! Batches: taken apart into the very elements that another reader sees, each judged as if it had
//! come alone, and bound by what the sender may mix.

use bytes::Bytes;
use serde_json::value::RawValue;
use vestibule_frame::{BATCH_MAX, Batch, Frame, Kind, Limits, Payload, Reason, encode, json};

use super::trimmed;

/// `data` as a body that may be a batch.
pub(crate) fn check(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let limits = Limits::default();
    let alone = Frame::parse(bytes.clone(), &limits);
    let client = Payload::parse(bytes.clone(), &limits);
    let upstream = Payload::parse_upstream(bytes, &limits);
    if trimmed(data).first() != Some(&b'[') {
        let both = [client, upstream].map(|payload| match payload {
            Ok(Payload::Single(frame)) => Ok(frame.root()),
            Ok(Payload::Batch(_)) => panic!("a batch that is no array"),
            Err(error) => Err(error),
        });
        let alone = alone.map(|frame| frame.root());
        assert_eq!(both, [alone.clone(), alone]);
        return;
    }
    let alone = alone.expect_err("an array is no message").reason;
    match upstream {
        Ok(Payload::Single(_)) => panic!("an array taken as one message"),
        Ok(Payload::Batch(batch)) => {
            assert_eq!(alone, Reason::BatchNotAllowed);
            elements(data, &batch);
            by_a_client(&batch, client.as_ref().err().map(|error| error.reason));
        }
        Err(error) => {
            assert!(error.offset <= data.len());
            assert_eq!(
                error.id, None,
                "BAT-04: nothing of a refused batch is answered by id"
            );
            assert_eq!(
                client.expect_err("a client may do less"),
                error,
                "the same refusal"
            );
            let valid = json::validate(data, &limits).is_ok();
            assert!(!(valid && error.reason.is_unreadable()));
        }
    }
}

fn elements(data: &[u8], batch: &Batch) {
    let expected: Vec<&RawValue> = serde_json::from_slice(data).expect("an array");
    let texts: Vec<&[u8]> = batch
        .elements
        .iter()
        .map(|frame| frame.bytes().as_ref())
        .collect();
    let expected: Vec<&[u8]> = expected
        .iter()
        .map(|value| value.get().as_bytes())
        .collect();
    assert_eq!(texts, expected);
    assert!((1..=BATCH_MAX).contains(&texts.len()));
    assert_eq!(batch.duplicates.len(), texts.len());
    assert!(!batch.duplicates.first().expect("an element"));
    for (at, frame) in batch.elements.iter().enumerate() {
        let alone = Frame::parse(Bytes::copy_from_slice(frame.bytes()), &Limits::default());
        let alone = alone.expect("an element is a message of its own");
        assert_eq!((alone.kind(), alone.id()), (frame.kind(), frame.id()));
        assert_eq!(
            (alone.params(), alone.result()),
            (frame.params(), frame.result())
        );
        let earlier = batch.elements.iter().take(at);
        let repeats = frame.kind() == Kind::Request
            && earlier
                .filter(|other| other.kind() == Kind::Request)
                .any(|other| other.id() == frame.id());
        assert_eq!(batch.duplicates.get(at), Some(&repeats), "BAT-07");
    }
    let joined: Vec<Bytes> = batch
        .elements
        .iter()
        .map(|frame| frame.bytes().clone())
        .collect();
    let again = Payload::parse_upstream(encode::batch(&joined), &Limits::default());
    let again = again.expect("a batch put together again").into_frames();
    assert_eq!(again.len(), joined.len());
}

/// BAT-01, BAT-02: a client's batch neither mixes nor initialises.
fn by_a_client(batch: &Batch, refusal: Option<Reason>) {
    let responses = batch
        .elements
        .iter()
        .filter(|frame| frame.kind() == Kind::Response);
    let mixed = !matches!(responses.count(), 0) && {
        batch
            .elements
            .iter()
            .any(|frame| frame.kind() != Kind::Response)
    };
    let initialises = batch
        .elements
        .iter()
        .any(|frame| frame.method().as_deref() == Some("initialize"));
    match refusal {
        None => assert!(!mixed && !initialises),
        Some(Reason::BatchMixed) => assert!(mixed),
        Some(Reason::BatchInitialize) => assert!(initialises),
        Some(other) => panic!("{other} for a client alone"),
    }
}
