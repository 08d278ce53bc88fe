//! Where what is kept: everything of a session is in its one slot (EL-24).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use vestibule_store::redis::{Key, Slot};

use crate::event_id::StreamId;

/// A stream's name in keys, hints and indexes.
pub(super) fn name_of(id: StreamId) -> String {
    URL_SAFE_NO_PAD.encode(id.as_bytes())
}

/// The stream of that name.
pub(super) fn stream_of(name: &str) -> Option<StreamId> {
    let bytes = URL_SAFE_NO_PAD.decode(name).ok()?;
    Some(StreamId::from_bytes(bytes.try_into().ok()?))
}

/// Tag and stream, as hints name them.
pub(super) fn place_of(slot: &Slot, id: StreamId) -> Bytes {
    Bytes::from(format!("{} {}", slot.tag(), name_of(id)))
}

/// The session's log: an index of its streams, its standalone readers, counters of what waits.
pub(super) fn log(slot: &Slot) -> Key {
    slot.key("l")
}

/// What waits for a standalone stream, and the newest of each subject there.
pub(super) fn waiting(slot: &Slot) -> [Key; 2] {
    [slot.key("w"), slot.key("i")]
}

/// What is remembered of a stream, and its events.
pub(super) fn stream(slot: &Slot, id: StreamId) -> [Key; 2] {
    let name = name_of(id);
    [
        slot.key(&format!("m:{name}")),
        slot.key(&format!("e:{name}")),
    ]
}

/// A number as scripts read it.
pub(super) fn number(number: u64) -> Bytes {
    Bytes::from(number.to_string())
}

/// A text as scripts read it.
pub(super) fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// A yes or no as scripts read it.
pub(super) fn flag(flag: bool) -> Bytes {
    Bytes::from_static(if flag { b"1" } else { b"0" })
}

/// A time as scripts read it.
pub(super) fn millis(time: std::time::Duration) -> Bytes {
    number(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
