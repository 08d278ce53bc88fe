//! The frame from outside: what is taken, what is refused and why, and that nothing else changes.

mod corpus;
mod envelope;
mod fidelity;
mod generate;
mod grammar;
mod properties;
mod response;
mod suite;

use bytes::Bytes;
use vestibule_frame::{Frame, FrameError, Limits, Reason};

fn parse(text: impl AsRef<[u8]>) -> Result<Frame, FrameError> {
    Frame::parse(Bytes::copy_from_slice(text.as_ref()), &Limits::default())
}

fn good(text: impl AsRef<[u8]>) -> Frame {
    let text = text.as_ref();
    parse(text).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)))
}

fn refusal(text: impl AsRef<[u8]>) -> Reason {
    let text = text.as_ref();
    match parse(text) {
        Ok(_) => panic!("taken: {}", String::from_utf8_lossy(text)),
        Err(error) => error.reason,
    }
}

/// A call whose `params` have these members.
fn call(members: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{members}}}}}"#)
}

/// A call with this text as the value of an argument.
fn argument(value: &[u8]) -> Vec<u8> {
    let head =
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","arguments":{"v":"#;
    [head, value, b"}}}"].concat()
}
