//! Server-sent events for test peers: a parser that takes bytes as they come,
//! and the writing of single events. Independent of the product's own.

/// One dispatched event, or one comment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its `event` field.
    pub event: Option<String>,
    /// Its `id` field, empty ids included.
    pub id: Option<String>,
    /// Its `data` lines, joined; none when it had none.
    pub data: Option<String>,
    /// Its `retry` field.
    pub retry: Option<u64>,
    /// Comment lines before its end.
    pub comments: Vec<String>,
}

impl SseEvent {
    /// The data as JSON.
    ///
    /// # Panics
    ///
    /// There is none, or it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let data = self.data.as_deref().expect("an event with data");
        serde_json::from_str(data).unwrap_or_else(|error| panic!("no JSON ({error}): {data}"))
    }
}

/// Turns bytes into events. Unlike a browser it also hands out blocks without
/// data: a test must see priming events and keep-alive comments.
#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    after_cr: bool,
    event: SseEvent,
    seen: bool,
}

impl SseReader {
    /// Takes bytes; gives the events they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<SseEvent> {
        let mut events = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' if self.after_cr => self.after_cr = false,
                b'\r' | b'\n' => {
                    self.after_cr = byte == b'\r';
                    events.extend(self.end_line());
                }
                _ => {
                    self.after_cr = false;
                    self.line.push(byte);
                }
            }
        }
        events
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.seen).then_some(event);
        }
        self.seen = true;
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "" => self.event.comments.push(value.to_owned()),
            "event" => self.event.event = Some(value.to_owned()),
            "id" => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok(),
            "data" => match &mut self.event.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            _ => {}
        }
        None
    }
}

/// The bytes of one event.
#[must_use]
pub fn encode(id: Option<&str>, data: &str) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    let data: String = data.lines().map(|line| format!("data: {line}\n")).collect();
    format!(
        "{id}{}\n",
        if data.is_empty() {
            "data:\n".to_owned()
        } else {
            data
        }
    )
}

#[cfg(test)]
mod tests {
    use super::{SseEvent, SseReader, encode};

    #[test]
    fn every_split_and_line_end_gives_the_same_events() {
        for end in ["\n", "\r", "\r\n"] {
            let text = [
                "id: 1", "data: a", "data: b", "", ": ping", "", "event: x", "data:c", "", "",
            ]
            .join(end);
            let whole = SseReader::default().push(text.as_bytes());
            let mut reader = SseReader::default();
            let split: Vec<_> = text.bytes().flat_map(|byte| reader.push(&[byte])).collect();
            assert_eq!(whole, split);
            assert_eq!(whole.len(), 3, "{end:?}");
            assert_eq!(whole[0].data.as_deref(), Some("a\nb"));
            assert_eq!(whole[1].comments, ["ping"]);
            assert_eq!(whole[2].event.as_deref(), Some("x"));
        }
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        let events = SseReader::default().push(encode(Some("7"), "{}\n[]").as_bytes());
        let expected = SseEvent {
            id: Some("7".into()),
            data: Some("{}\n[]".into()),
            ..SseEvent::default()
        };
        assert_eq!(events, [expected]);
    }

    #[test]
    fn a_priming_event_is_seen() {
        let events = SseReader::default().push(b"retry: 500\nid: a\ndata:\n\n");
        assert_eq!(events[0].retry, Some(500));
        assert_eq!(events[0].data.as_deref(), Some(""));
    }
}
