//! A body that may be a batch: JSON-RPC arrays, which only revision 2025-03-26 has.
//!
//! A batch is taken apart at once: every element is a [`Frame`] of its own over the same memory, so
//! that each goes through policy and limits singly (BAT-01). An element that is no proper message
//! refuses the whole batch, with nothing executed and no id in the answer (BAT-04).

use std::collections::HashSet;

use bytes::Bytes;

use crate::error::{FrameError, Reason};
use crate::json;
use crate::message::{Frame, Kind};
use crate::{Limits, Span};

/// The largest number of elements in a batch (BAT-07).
pub const BATCH_MAX: usize = 64;

/// One body: a message or a batch of them.
#[derive(Clone, Debug)]
pub enum Payload {
    /// One message.
    Single(Frame),
    /// An array of messages.
    Batch(Batch),
}

/// The elements of a batch, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The messages; never empty.
    pub elements: Vec<Frame>,
    /// BAT-07: for each element, whether its id occurred in an earlier one.
    pub duplicates: Vec<bool>,
}

/// Whose batch it is, which decides what it may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Client,
    Upstream,
}

impl Payload {
    /// Reads a client's body: one message, or a batch by BAT-01 to BAT-07.
    ///
    /// # Errors
    /// What [`Frame::parse`] refuses, and batches that are empty, too long, mixed, or contain
    /// `initialize`, another batch or anything that is not a message.
    pub fn parse(bytes: Bytes, limits: &Limits) -> Result<Payload, FrameError> {
        Payload::read(bytes, limits, Sender::Client)
    }

    /// Reads what an upstream sent (BAT-09): its batches may mix requests and responses.
    ///
    /// # Errors
    /// As [`Payload::parse`], but for the mixing.
    pub fn parse_upstream(bytes: Bytes, limits: &Limits) -> Result<Payload, FrameError> {
        Payload::read(bytes, limits, Sender::Upstream)
    }

    /// The messages of the body, one or many.
    pub fn into_frames(self) -> Vec<Frame> {
        match self {
            Payload::Single(frame) => vec![frame],
            Payload::Batch(batch) => batch.elements,
        }
    }

    fn read(bytes: Bytes, limits: &Limits, sender: Sender) -> Result<Payload, FrameError> {
        let space = |byte: &&u8| matches!(**byte, b' ' | b'\n' | b'\r' | b'\t');
        let lead = bytes.iter().take_while(space).count();
        if bytes.get(lead) != Some(&b'[') {
            return Frame::parse(bytes, limits).map(Payload::Single);
        }
        json::validate(&bytes, limits)?;
        Batch::split(&bytes, limits, sender).map(Payload::Batch)
    }
}

impl Batch {
    fn split(bytes: &Bytes, limits: &Limits, sender: Sender) -> Result<Batch, FrameError> {
        let spans: Vec<Span> = json::elements(bytes).take(BATCH_MAX + 1).collect();
        if spans.is_empty() {
            return Err(FrameError::new(Reason::BatchEmpty));
        }
        if spans.len() > BATCH_MAX {
            return Err(FrameError::new(Reason::BatchTooLong));
        }
        let mut elements = Vec::with_capacity(spans.len());
        for span in spans {
            elements.push(element(bytes, span, limits)?);
        }
        let batch = Batch {
            duplicates: duplicates(&elements),
            elements,
        };
        if sender == Sender::Client {
            batch.check_client()?;
        }
        Ok(batch)
    }

    /// BAT-01 and BAT-02, which bind clients.
    fn check_client(&self) -> Result<(), FrameError> {
        if self
            .elements
            .iter()
            .any(|frame| frame.method().as_deref() == Some("initialize"))
        {
            return Err(FrameError::new(Reason::BatchInitialize));
        }
        let responses = self
            .elements
            .iter()
            .filter(|frame| frame.kind() == Kind::Response)
            .count();
        if responses != 0 && responses != self.elements.len() {
            return Err(FrameError::new(Reason::BatchMixed));
        }
        Ok(())
    }
}

fn element(bytes: &Bytes, span: Span, limits: &Limits) -> Result<Frame, FrameError> {
    let start = span.range().start;
    if bytes.get(start) != Some(&b'{') {
        return Err(FrameError {
            reason: Reason::BatchElement,
            offset: start,
            id: None,
        });
    }
    Frame::parse(bytes.slice(span.range()), limits).map_err(|error| FrameError {
        offset: error.offset + start,
        id: None,
        ..error
    })
}

/// Which elements repeat the id of an earlier element. Only requests: a response's id is its
/// receiver's.
fn duplicates(elements: &[Frame]) -> Vec<bool> {
    let mut seen = HashSet::new();
    let mut repeats = |frame: &Frame| match (frame.kind(), frame.id()) {
        (Kind::Request, Some(id)) => !seen.insert(id),
        _ => false,
    };
    elements.iter().map(&mut repeats).collect()
}

#[cfg(test)]
mod tests {
    use super::{BATCH_MAX, Payload};
    use crate::{Batch, FrameError, Limits, Reason};
    use bytes::Bytes;

    const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

    fn parse(text: &str) -> Result<Payload, FrameError> {
        Payload::parse(Bytes::copy_from_slice(text.as_bytes()), &Limits::default())
    }

    fn batch(text: &str) -> Batch {
        match parse(text).expect("a good batch") {
            Payload::Batch(batch) => batch,
            Payload::Single(frame) => panic!("a single message: {frame:?}"),
        }
    }

    fn refusal(text: &str) -> Reason {
        parse(text).expect_err("a refusal").reason
    }

    #[test]
    fn bat_01_elements_are_split_and_keep_their_bytes() {
        let list = batch(&format!(
            " [ {PING} ,\n{{\"jsonrpc\":\"2.0\",\"method\":\"n\"}}]\n"
        ));
        let texts: Vec<_> = list
            .elements
            .iter()
            .map(|frame| frame.bytes().clone())
            .collect();
        assert_eq!(texts, [PING, r#"{"jsonrpc":"2.0","method":"n"}"#]);
        assert_eq!(refusal(&format!("[{PING},{ANSWER}]")), Reason::BatchMixed);
        assert_eq!(batch(&format!("[{ANSWER},{ANSWER}]")).elements.len(), 2);
    }

    #[test]
    fn bat_02_initialize_refuses_the_whole_batch() {
        let text = format!(r#"[{PING},{{"jsonrpc":"2.0","id":2,"method":"initi\u0061lize"}}]"#);
        assert_eq!(refusal(&text), Reason::BatchInitialize);
    }

    #[test]
    fn bat_03_bat_04_case_58_empty_and_foreign_elements_are_refused() {
        assert_eq!(refusal("[]"), Reason::BatchEmpty);
        for element in ["1", "null", "[]", "\"x\"", &format!("[{PING}]")] {
            assert_eq!(
                refusal(&format!("[{PING},{element}]")),
                Reason::BatchElement,
                "{element}"
            );
        }
        let error = parse(&format!(r#"[{PING},{{"id":7,"method":"m"}}]"#)).expect_err("no version");
        assert_eq!((error.reason, error.id), (Reason::Jsonrpc, None));
        assert_eq!(refusal(&format!("[{PING},]")), Reason::Syntax);
        assert_eq!(refusal(&format!("\u{feff}[{PING}]")), Reason::Bom);
    }

    #[test]
    fn bat_07_size_and_repeated_ids() {
        let many = vec![PING; BATCH_MAX].join(",");
        assert_eq!(batch(&format!("[{many}]")).elements.len(), BATCH_MAX);
        assert_eq!(refusal(&format!("[{many},{PING}]")), Reason::BatchTooLong);
        let string = PING.replace('1', "\"1\"");
        let list = batch(&format!("[{PING},{string},{PING}]"));
        assert_eq!(list.duplicates, [false, false, true]);
    }

    #[test]
    fn bat_09_an_upstream_may_mix() {
        let text = Bytes::from(format!("[{PING},{ANSWER}]"));
        let payload = Payload::parse_upstream(text, &Limits::default()).expect("taken apart");
        assert_eq!(payload.into_frames().len(), 2);
    }
}
