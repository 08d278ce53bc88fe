//! Reading `text/event-stream`, only as far as a measurement needs it: ids and data.
//!
//! Written apart from the gateway's own parser on purpose: a fault that both shared would be
//! invisible to a comparison.

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The value of its `id` field.
    pub id: Option<String>,
    /// Its data lines, joined.
    pub data: Vec<u8>,
}

/// Splits chunks into events.
#[derive(Debug, Default)]
pub struct EventReader {
    rest: Vec<u8>,
    event: Event,
    has_data: bool,
}

impl EventReader {
    /// Takes a chunk and hands every event it completes to `take`. Events without data (priming
    /// events, comments) are handed over too when they carry an id.
    pub fn push(&mut self, chunk: &[u8], mut take: impl FnMut(Event)) {
        let mut unread = chunk;
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = unread.split_at(end);
            unread = behind.get(1..).unwrap_or_default();
            let finished = if self.rest.is_empty() {
                self.line(line)
            } else {
                self.rest.extend_from_slice(line);
                let whole = std::mem::take(&mut self.rest);
                self.line(&whole)
            };
            if let Some(event) = finished {
                take(event);
            }
        }
        self.rest.extend_from_slice(unread);
    }

    /// Takes one line; an empty one ends an event.
    fn line(&mut self, line: &[u8]) -> Option<Event> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            self.has_data = false;
            return (event.id.is_some() || !event.data.is_empty()).then_some(event);
        }
        if let Some(value) = field(line, b"data:") {
            if self.has_data {
                self.event.data.push(b'\n');
            }
            self.event.data.extend_from_slice(value);
            self.has_data = true;
        } else if let Some(value) = field(line, b"id:") {
            self.event.id = Some(String::from_utf8_lossy(value).into_owned());
        }
        None
    }
}

fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(name)?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] =
        b": hello\r\nid: 1\ndata: \n\nid: 2\r\ndata: a\r\ndata:b\r\n\r\nevent: x\ndata: c\n\n: \n\nretry: 5\n\n";

    fn read(chunks: &[&[u8]]) -> Vec<(Option<String>, String)> {
        let mut reader = EventReader::default();
        let mut events = Vec::new();
        for chunk in chunks {
            reader.push(chunk, |event| {
                events.push((event.id, String::from_utf8(event.data).unwrap()));
            });
        }
        events
    }

    #[test]
    fn events_are_the_same_wherever_the_stream_is_cut() {
        let whole = read(&[STREAM]);
        let wanted = [(Some("1"), ""), (Some("2"), "a\nb"), (None, "c")];
        let wanted: Vec<_> = wanted
            .map(|(id, data)| (id.map(str::to_owned), data.to_owned()))
            .into();
        assert_eq!(whole, wanted);
        for cut in 0..=STREAM.len() {
            let (front, back) = STREAM.split_at(cut);
            assert_eq!(read(&[front, back]), wanted, "cut at {cut}");
        }
    }

    #[test]
    fn an_event_that_never_ends_is_never_handed_over() {
        assert!(read(&[b"id: 1\ndata: half\n"]).is_empty());
    }
}
