//! Reading `text/event-stream` as a client must. Written apart from the gateway's own parser: a
//! fault that both shared would be invisible.

/// A dispatched event; without data it only sets the position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Event {
    pub(super) id: Option<String>,
    pub(super) data: String,
    pub(super) retry: Option<u64>,
}

/// Splits chunks into events.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    line: Vec<u8>,
    after_cr: bool,
    event: Event,
    has_data: bool,
    /// Whether a comment said that the outcome of a resume is not known yet.
    pub(super) was_held: bool,
}

impl EventReader {
    /// Takes a chunk; the events it completes.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for byte in chunk {
            let ends = matches!(byte, b'\r' | b'\n');
            if ends && !(*byte == b'\n' && self.after_cr) {
                events.extend(self.end_line());
            } else if !ends {
                self.line.push(*byte);
            }
            self.after_cr = *byte == b'\r';
        }
        events
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = String::from_utf8_lossy(&self.line).into_owned();
        self.line.clear();
        if line.is_empty() {
            self.has_data = false;
            let event = std::mem::take(&mut self.event);
            return (event != Event::default()).then_some(event);
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "" => self.was_held |= value == "wait",
            "id" => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok(),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_wherever_the_stream_is_cut() {
        let text = b": hello\r\n\r\nid: 1\nretry: 5\ndata:\n\nid: 2\r\ndata: a\r\ndata:b\r\n\r\nevent: x\rdata: c\r\r";
        let whole = EventReader::default().push(text);
        assert_eq!(whole.len(), 3, "{whole:?}");
        assert_eq!(whole[0].retry, Some(5));
        assert_eq!(whole[1].data, "a\nb");
        assert_eq!(
            (whole[2].id.as_deref(), whole[2].data.as_str()),
            (None, "c")
        );
        for cut in 0..=text.len() {
            let (front, back) = text.split_at(cut);
            let mut reader = EventReader::default();
            let mut events = reader.push(front);
            events.extend(reader.push(back));
            assert_eq!(events, whole, "cut at {cut}");
        }
    }
}
