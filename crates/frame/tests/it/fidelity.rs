//! FRM-24 at scale: 10,000 generated messages go through [`Frame::parse`] and a [`Draft`] with the
//! edits of a hop. What comes out is compared byte for byte with what the generator itself wrote
//! down, which knows nothing of spans.
//!
//! The spans that a hop owns, and all that may differ:
//!
//! | span | by |
//! |---|---|
//! | `id` | FRM-25 |
//! | `params.name` | FRM-24: the name that a federated server exposes |
//! | `params._meta.progressToken` | FRM-25, MET-07 |
//! | the protocol's keys in `params._meta` and `result._meta` | MET-07 |
//! | CR and LF between tokens, on streams | SSE-01 |

use bytes::Bytes;
use vestibule_frame::sse::{self, Parser};
use vestibule_frame::{Draft, Frame, Id, encode, meta};

use crate::generate::{Edit, Object, Random, Value};
use crate::good;

const MESSAGES: u64 = 10_000;

/// One generated message, its edits, and the text that must come out.
struct Case {
    text: String,
    edits: Vec<(&'static [&'static str], Edit)>,
    expected: String,
}

const ID: &[&str] = &["id"];
const NAME: &[&str] = &["params", "name"];
const TOKEN: &[&str] = &["params", "_meta", "progressToken"];
const VERSION: &[&str] = &["params", "_meta", meta::PROTOCOL_VERSION];
const INFO: &[&str] = &["params", "_meta", meta::CLIENT_INFO];
const SERVER: &[&str] = &["result", "_meta", meta::SERVER_INFO];

/// The edits of a hop, some of them, in any order.
fn edits(random: &mut Random, request: bool) -> Vec<(&'static [&'static str], Edit)> {
    let set = |text: &str| Edit::Set(text.to_owned());
    let mut edits = if request {
        vec![
            (ID, set("\"5f1a-17\"")),
            (NAME, set("\"up__\\u00e9\"")),
            (TOKEN, set("\"t-1\"")),
            (VERSION, set("\"2026-07-28\"")),
            (INFO, Edit::Remove),
        ]
    } else {
        vec![(ID, set("-0")), (SERVER, set("{\"name\" : \"g\"}"))]
    };
    for (path, edit) in &mut edits {
        if path.len() == 3 && random.one_in(3) {
            *edit = Edit::Remove;
        }
    }
    edits.retain(|_| !random.one_in(4));
    random.shuffle(&mut edits);
    edits
}

fn case(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let request = !random.one_in(3);
    let message = random.message(request);
    let edits = edits(&mut random, request);
    Case {
        text: around(&mut random, &message),
        expected: String::new(),
        edits,
    }
    .expecting(&message)
}

/// Whitespace before and behind the message; a marker of where it stands is not needed, as the
/// message begins with the first brace.
fn around(random: &mut Random, message: &Object) -> String {
    format!("{}{}{}", random.space(), message.text(), random.space())
}

impl Case {
    fn expecting(mut self, message: &Object) -> Case {
        let original = message.text();
        let mut edited = message.clone();
        for (path, edit) in &self.edits {
            edited.edit(path, edit.clone());
        }
        self.expected = self.text.replacen(&original, &edited.text_edited(), 1);
        self
    }

    /// The same edits on a draft.
    fn draft(&self) -> Draft {
        let frame = good(&self.text);
        let mut draft = Draft::new(frame.clone());
        for (path, edit) in &self.edits {
            apply(&mut draft, &frame, path, edit);
        }
        draft
    }
}

/// Each edit as the rooms make it: ids and names by their own methods, `_meta` by path.
fn apply(draft: &mut Draft, frame: &Frame, path: &[&str], edit: &Edit) {
    match (path, edit) {
        (["id"], Edit::Set(token)) => {
            let id = Id::from_token(Bytes::from(token.clone())).expect("an id");
            draft.set_id(&id);
        }
        (["params", "name"], Edit::Set(value)) => match frame.name() {
            Some(name) => draft.replace(name, Bytes::from(value.clone())),
            None => draft.set_at(path, Bytes::from(value.clone())),
        },
        (["params", "_meta", key], Edit::Set(value)) => {
            draft.set_meta(key, Bytes::from(value.clone()));
        }
        (["params", "_meta", key], Edit::Remove) => draft.remove_meta(key),
        (_, Edit::Set(value)) => draft.set_at(path, Bytes::from(value.clone())),
        (_, Edit::Remove) => draft.remove_at(path),
    }
}

#[test]
fn frm_24_case_50_ten_thousand_messages_keep_every_byte_that_no_hop_owns() {
    let mut edited = 0;
    for seed in 0..MESSAGES {
        let case = case(seed);
        assert_eq!(
            Draft::new(good(&case.text)).to_bytes(),
            case.text,
            "seed {seed}"
        );
        let out = case.draft().to_bytes();
        let shown = String::from_utf8_lossy(&out);
        assert_eq!(shown, case.expected, "seed {seed}: {}", case.text);
        edited += usize::from(case.expected != case.text);
    }
    assert!(edited > 9_000, "{edited} messages were changed");
}

/// SSE-01: on a stream the same messages lose CR and LF between tokens, and nothing else.
#[test]
fn sse_01_ten_thousand_messages_lose_only_line_ends_on_a_stream() {
    for seed in 0..MESSAGES {
        let case = case(seed);
        let expected: String = case
            .expected
            .chars()
            .filter(|c| !matches!(c, '\r' | '\n'))
            .collect();
        let chunks = case.draft().chunks();
        assert_eq!(encode::single_line(&chunks), expected, "seed {seed}");
        let mut parser = Parser::new(1 << 20);
        parser.push(&sse::message(Some("1k1.x"), &chunks));
        let event = parser.next_event().expect("small").expect("one event");
        assert_eq!(event.data.expect("data"), expected, "seed {seed}");
    }
}

/// The comparison is sharp: a hop that writes messages anew, drops whitespace or flips one bit fails.
#[test]
fn frm_24_a_hop_that_is_not_faithful_is_noticed() {
    let messages = 500;
    let mut noticed = [0; 3];
    for seed in 0..messages {
        let case = case(seed);
        let out = case.draft().to_bytes();
        let written_anew = serde_json::from_slice::<serde_json::Value>(&out)
            .map(|value| value.to_string().into_bytes())
            .unwrap_or_default();
        let dense: Vec<u8> = out.iter().copied().filter(|byte| *byte != b' ').collect();
        let mut flipped = out.to_vec();
        let at = usize::try_from(seed).expect("small") % flipped.len();
        flipped[at] ^= 1;
        for (count, broken) in noticed.iter_mut().zip([written_anew, dense, flipped]) {
            *count += u64::from(broken != case.expected.as_bytes());
        }
    }
    assert_eq!(noticed[2], messages);
    assert!(
        noticed[0] > messages * 9 / 10 && noticed[1] > messages / 2,
        "{noticed:?}"
    );
}

/// The generator makes what it is meant to make.
#[test]
fn generated_messages_are_hostile() {
    let text: String = (0..1_000).map(|seed| case(seed).text).collect();
    for part in [
        "1e400",
        "-0",
        "\\ud800",
        "\\u0000",
        "\r",
        "\t",
        "\u{1f600}",
        "\\/",
        "9007199254740993",
    ] {
        assert!(text.contains(part), "{part:?}");
    }
    let object = Object::of(vec![("a", Value::text("1"))]);
    assert_eq!(object.text(), "{\"a\":1}");
}
