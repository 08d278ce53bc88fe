//! What is written down of upstream sessions and calls over HTTP, so that another process can go on
//! with them: all that is needed is text that the upstream gave us.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use vestibule_exchange::Profile;
use vestibule_store::{Decoder, Encoder};
use vestibule_terms::Revision;

use crate::ids::CallId;
use crate::legacy::handshake;
use crate::legacy::live::{Line, Live};

const FORMAT: u8 = 1;
const FORMAT_OF_MARKS: u8 = 2;

/// Longest event id that a call is continued behind.
const EVENT_ID_MAX: usize = 2048;

/// An upstream session as its handshake left it.
pub(crate) struct SessionRecord {
    pub(crate) session_id: Option<HeaderValue>,
    pub(crate) profile: Arc<Profile>,
}

/// Where a call stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Our id of the request.
    pub(crate) call: CallId,
    /// The last event of its stream.
    pub(crate) event: String,
    /// What the upstream asked to wait before a reconnect.
    pub(crate) retry: Option<Duration>,
    /// Whether the upstream waits for an answer of the client, so that its silence says nothing.
    pub(crate) waits: bool,
}

// === impl SessionRecord ===

impl SessionRecord {
    /// What is to be written down of an open session; nothing of one on a channel, which ends with
    /// its process.
    pub(crate) fn of(live: &Live) -> Option<Bytes> {
        let Line::Http(line) = &live.line else {
            return None;
        };
        let id = line.session_id.as_ref().map(HeaderValue::as_bytes);
        let profile = &live.profile;
        let record = Encoder::new(FORMAT)
            .bytes(profile.revision.as_str().as_bytes())
            .list(id.into_iter().collect::<Vec<_>>().into_iter())
            .bytes(&profile.capabilities);
        let instructions: Vec<&[u8]> = profile.instructions.iter().map(|t| t.as_bytes()).collect();
        Some(Bytes::from(record.list(instructions.into_iter()).finish()))
    }

    /// Reads it; nothing that another version of the program wrote differently.
    pub(crate) fn read(record: &Bytes) -> Option<Self> {
        let mut fields = Decoder::new(FORMAT, record.clone())?;
        let revision = Revision::parse(&fields.text()?).filter(|one| !one.is_modern())?;
        let session_id = match fields.list()?.as_slice() {
            [] => None,
            [id] => {
                let value = HeaderValue::from_bytes(id).ok()?;
                handshake::session_id(Some(&value)).ok()?
            }
            _ => return None,
        };
        let capabilities = fields.bytes()?;
        let instructions = match fields.list()?.as_slice() {
            [] => None,
            [text] => Some(String::from_utf8(text.to_vec()).ok()?),
            _ => return None,
        };
        fields.end()?;
        let profile = Arc::new(Profile {
            revision,
            over_http: true,
            capabilities: Bytes::copy_from_slice(&capabilities),
            instructions,
        });
        Some(Self {
            session_id,
            profile,
        })
    }
}

// === impl Mark ===

impl Mark {
    /// What is to be written down; nothing where the upstream's ids are too long to keep.
    pub(crate) fn write(
        call: &CallId,
        event: &str,
        retry: Option<Duration>,
        waits: bool,
    ) -> Option<Bytes> {
        if event.len() > EVENT_ID_MAX {
            return None;
        }
        let millis = retry.map_or(0, |retry| {
            u64::try_from(retry.as_millis())
                .unwrap_or(u64::MAX)
                .saturating_add(1)
        });
        let mark = Encoder::new(FORMAT_OF_MARKS)
            .bytes(call.as_str().as_bytes())
            .bytes(event.as_bytes())
            .number(millis)
            .byte(u8::from(waits));
        Some(Bytes::from(mark.finish()))
    }

    /// Reads it.
    pub(crate) fn read(mark: &Bytes) -> Option<Self> {
        let mut fields = Decoder::new(FORMAT_OF_MARKS, mark.clone())?;
        let call = CallId::written(&fields.text()?)?;
        let event = fields.text()?;
        let retry = fields.number()?.checked_sub(1).map(Duration::from_millis);
        let waits = fields.byte()? != 0;
        fields.end()?;
        Some(Self {
            call,
            event,
            retry,
            waits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;

    #[test]
    fn res_08_a_mark_says_where_a_call_stands() {
        let call = Ids::new().call();
        for (retry, waits) in [
            (None, true),
            (Some(Duration::ZERO), false),
            (Some(Duration::from_millis(250)), true),
        ] {
            let written = Mark::write(&call, "e/7", retry, waits).unwrap();
            let read = Mark::read(&written).unwrap();
            let expected = Mark {
                call: call.clone(),
                event: "e/7".to_owned(),
                retry,
                waits,
            };
            assert_eq!(read, expected);
            for cut in 0..written.len() {
                assert_eq!(Mark::read(&written.slice(..cut)), None, "{cut}");
            }
        }
        assert_eq!(Mark::write(&call, &"x".repeat(2049), None, false), None);
    }
}
