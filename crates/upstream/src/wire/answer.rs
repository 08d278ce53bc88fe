//! The answer of a POST or GET, message by message: one JSON body or an event stream, told apart by
//! media type alone (HTR-07).

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{Response, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use std::time::Duration;
use vestibule_frame::sse::Parser;
use vestibule_frame::{Frame, FrameError, Limits, Payload};

use crate::fault::Fault;
use crate::wire::request::drain;

/// An answer that is being read.
pub(crate) struct Answer {
    body: Body,
    max: usize,
    form: Form,
}

/// One body or one event.
#[derive(Debug)]
pub(crate) struct Item {
    /// Its messages: none for an event without data, several for a batch (BAT-09).
    pub(crate) frames: Result<Vec<Frame>, FrameError>,
    /// The event id, when the event sets one.
    pub(crate) id: Option<String>,
    /// The reconnection time, when the event sets one.
    pub(crate) retry: Option<Duration>,
}

enum Form {
    Json {
        first: Option<Bytes>,
        more: BytesMut,
        done: bool,
    },
    Stream(Parser),
}

// === impl Answer ===

impl Answer {
    /// Reads the body of a success; messages larger than `max` are refused.
    pub(crate) fn new(response: Response<Body>, max: usize) -> Result<Self, Fault> {
        let (head, body) = response.into_parts();
        if let Some(encoding) = head.headers.get(header::CONTENT_ENCODING)
            && encoding.as_bytes() != b"identity"
        {
            return Err(Fault::Protocol("content_encoding"));
        }
        let media_type = head.headers.get(header::CONTENT_TYPE);
        let media_type = media_type
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        let form = if essence.eq_ignore_ascii_case("application/json") {
            Form::Json {
                first: None,
                more: BytesMut::new(),
                done: false,
            }
        } else if essence.eq_ignore_ascii_case("text/event-stream") {
            Form::Stream(Parser::new(max))
        } else {
            return Err(Fault::Protocol("content_type"));
        };
        Ok(Self { body, max, form })
    }

    /// Whether this is an event stream.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.form, Form::Stream(_))
    }

    /// The next body or event; none at the end. Cancel safe: what has been read is kept.
    pub(crate) async fn next(&mut self) -> Result<Option<Item>, Fault> {
        loop {
            if let Form::Stream(parser) = &mut self.form {
                let event = parser
                    .next_event()
                    .map_err(|_| Fault::Protocol("too_large"))?;
                if let Some(event) = event {
                    let frames = event.data.map_or_else(|| Ok(Vec::new()), parse);
                    return Ok(Some(Item {
                        frames,
                        id: event.id,
                        retry: event.retry,
                    }));
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.take(data)?;
                    }
                }
                Some(Err(_)) => return Err(Fault::Broken),
                None => return Ok(self.end()),
            }
        }
    }

    /// The answer is complete: lets the connection be used again where that costs nothing.
    pub(crate) fn finish(self) {
        drain(self.body);
    }

    fn take(&mut self, data: Bytes) -> Result<(), Fault> {
        match &mut self.form {
            Form::Stream(parser) => parser.push(&data),
            Form::Json { first, more, .. } => {
                let length = first.as_ref().map_or(0, Bytes::len) + more.len() + data.len();
                if length > self.max {
                    return Err(Fault::Protocol("too_large"));
                }
                if more.capacity() == 0 && first.is_some() {
                    // a declared size is believed as far as an answer may go: no growing, no copying
                    let declared = usize::try_from(self.body.size_hint().lower());
                    let left = declared.unwrap_or(self.max).min(self.max - length);
                    more.reserve(length + left);
                }
                match first.take() {
                    // a body that comes in one piece is not copied
                    None if more.is_empty() => *first = Some(data),
                    None => more.extend_from_slice(&data),
                    Some(earlier) => {
                        more.extend_from_slice(&earlier);
                        more.extend_from_slice(&data);
                    }
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Option<Item> {
        let Form::Json { first, more, done } = &mut self.form else {
            return None;
        };
        if std::mem::replace(done, true) {
            return None;
        }
        let whole = first.take().unwrap_or_else(|| more.split().freeze());
        Some(Item {
            frames: parse(whole),
            id: None,
            retry: None,
        })
    }
}

fn parse(data: Bytes) -> Result<Vec<Frame>, FrameError> {
    Payload::parse_upstream(data, &Limits::default()).map(Payload::into_frames)
}
