//! JSONTestSuite: every file of its parsing folder as the value of an argument, in one run.
//!
//! `y_` files are taken and come out of a draft byte for byte, `n_` files are refused, and what the
//! suite leaves open is decided by [`OPEN`].

use vestibule_frame::{Draft, Reason};

use crate::suite::{OPEN, Open, files};
use crate::{argument, parse};

impl Open {
    /// The refusal; none when the file is taken.
    fn refusal(self) -> Option<Reason> {
        match self {
            Open::Number | Open::HalfPair => None,
            Open::NotUtf8 => Some(Reason::NotUtf8),
            Open::NoJson => Some(Reason::Syntax),
            Open::Deep => Some(Reason::Depth),
        }
    }
}

/// What becomes of a text as the value of an argument; taken ones leave a draft as they came.
fn verdict(name: &str, text: &[u8]) -> Option<Reason> {
    let body = argument(text);
    match parse(&body) {
        Err(error) => Some(error.reason),
        Ok(frame) => {
            let value = frame
                .member(frame.arguments().expect("arguments"), "v")
                .expect("the argument");
            assert_eq!(frame.text(value), text.trim_ascii(), "{name}");
            let mut draft = Draft::new(frame.clone());
            assert_eq!(draft.to_bytes(), body, "{name} untouched");
            draft.replace(frame.name().expect("a name"), "\"other\"".into());
            let around = argument(text);
            let at = around
                .windows(3)
                .position(|part| part == b"\"n\"")
                .expect("the name");
            let (before, behind) = around.split_at(at);
            let behind = behind.get(3..).expect("the rest");
            let expected = [before, b"\"other\"", behind].concat();
            assert_eq!(draft.to_bytes(), expected, "{name} beside an edit");
            None
        }
    }
}

#[test]
fn t11_t12_json_test_suite_verdicts() {
    let mut counts = [0; 3];
    for (name, text) in files() {
        let verdict = verdict(&name, &text);
        match name.get(..2) {
            Some("n_") => {
                assert!(verdict.is_some(), "{name} was taken");
                counts[0] += 1;
            }
            Some("y_") => {
                assert_eq!(verdict, None, "{name} was refused");
                counts[1] += 1;
            }
            _ => {
                let decision = OPEN.iter().find(|(open, _)| *open == name);
                let (_, decision) = decision.unwrap_or_else(|| panic!("{name} is not decided"));
                assert_eq!(verdict, decision.refusal(), "{name} by {decision:?}");
                counts[2] += 1;
            }
        }
    }
    assert_eq!(counts, [188, 95, 35], "the whole suite");
}
