//! Where a call between two rounds stands, as the session's record keeps it (S6): everything that the
//! next request to its upstream is made of.
//!
//! Whoever makes that request has put the record into the stage before it, so that of two processes one
//! does, and whoever finds it there later knows that the upstream may have been asked already.

use bytes::Bytes;
use vestibule_exchange::Answers;
use vestibule_frame::{Id, encode, json};
use vestibule_store::{Decoder, Encoder, ReplicaId};
use vestibule_terms::{Method, UpstreamId};

const FORMAT: u8 = 1;

/// What a call between two requests is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::legacy) enum Stage {
    /// Its client is asked.
    Asking,
    /// Its upstream wants to be called again a little later.
    Waiting,
    /// Its upstream is being asked.
    Requesting,
}

/// One thing that the upstream wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    /// The upstream's name of it, the token as it came.
    pub(super) key: Bytes,
    pub(super) method: Method,
    /// The id under which the client was asked.
    pub(super) id: Id,
    /// The address it was sent to, and the id of that elicitation.
    pub(super) url: Option<(String, String)>,
    /// What it has answered.
    pub(super) answer: Option<Bytes>,
}

/// One call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct State {
    pub(super) owner: ReplicaId,
    pub(super) stage: Stage,
    /// Grows with each stage; a note of the call names the one it was made in.
    pub(super) step: u64,
    /// How often the client was asked.
    pub(super) round: u8,
    /// How often in a row the upstream was called again without asking.
    pub(super) waits: u8,
    pub(super) upstream: UpstreamId,
    /// The client's request.
    pub(super) message: Bytes,
    /// The upstream's `requestState`.
    pub(super) state: Option<Bytes>,
    pub(super) asked: Vec<Asked>,
    /// When the client was asked and until when it may answer; milliseconds since the epoch.
    pub(super) since: u64,
    pub(super) until: u64,
    /// The progress that it had been told by then.
    pub(super) progress: f64,
}

// === impl Stage ===

impl Stage {
    const fn byte(self) -> u8 {
        match self {
            Stage::Asking => 0,
            Stage::Waiting => 1,
            Stage::Requesting => 2,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        let all = [Stage::Asking, Stage::Waiting, Stage::Requesting];
        all.into_iter().find(|stage| stage.byte() == byte)
    }
}

// === impl Asked ===

impl Asked {
    /// Whether this is the browser's page that the user went to before.
    pub(super) fn is_visited(&self, key: &Bytes, url: &str) -> bool {
        let accepted = self.answer.as_ref().is_some_and(|answer| {
            let action = json::member(answer, "action").and_then(json::string);
            action.as_deref() == Some("accept")
        });
        let same = |(visited, _): &(String, String)| visited == url;
        accepted && self.url.as_ref().is_some_and(same) && is_same(&self.key, key)
    }

    fn write(&self) -> Vec<u8> {
        let (url, elicitation) = self.url.clone().unzip();
        Encoder::new(FORMAT)
            .bytes(&self.key)
            .bytes(self.method.as_str().as_bytes())
            .bytes(self.id.as_bytes())
            .optional(url.as_deref().map(str::as_bytes))
            .optional(elicitation.as_deref().map(str::as_bytes))
            .optional(self.answer.as_deref())
            .finish()
    }

    fn read(record: Bytes) -> Option<Self> {
        let mut fields = Decoder::new(FORMAT, record)?;
        let (key, method) = (fields.bytes()?, Method::parse(&fields.text()?)?);
        let id = Id::from_token(fields.bytes()?)?;
        let (url, elicitation) = (text(&mut fields)?, text(&mut fields)?);
        let answer = fields.optional()?;
        fields.end()?;
        Some(Self {
            key,
            method,
            id,
            url: url.zip(elicitation),
            answer,
        })
    }
}

/// Whether two tokens are the same string.
fn is_same(a: &Bytes, b: &Bytes) -> bool {
    a == b || json::string(a).is_some_and(|a| Some(a) == json::string(b))
}

// === impl State ===

impl State {
    /// What the upstream is told next.
    pub(super) fn answers(&self) -> Answers {
        let answered = self.asked.iter();
        let members: Vec<Vec<u8>> = answered
            .filter_map(|one| Some([&one.key[..], b":", one.answer.as_ref()?].concat()))
            .collect();
        let object = [b"{", members.join(&b","[..]).as_slice(), b"}"].concat();
        Answers {
            upstream: self.upstream.clone(),
            state: self.state.clone(),
            responses: (!members.is_empty()).then(|| Bytes::from(object)),
        }
    }

    /// What is left to be known of a call that nobody may make again.
    pub(super) fn spent(&self) -> Self {
        let asked = self.asked.iter().map(|one| Asked {
            url: None,
            answer: None,
            ..one.clone()
        });
        Self {
            message: Bytes::new(),
            state: None,
            asked: asked.collect(),
            ..self.clone()
        }
    }

    pub(super) fn write(&self) -> Bytes {
        let asked: Vec<Vec<u8>> = self.asked.iter().map(Asked::write).collect();
        let record = Encoder::new(FORMAT)
            .bytes(self.owner.as_str().as_bytes())
            .byte(self.stage.byte())
            .number(self.step)
            .byte(self.round)
            .byte(self.waits)
            .bytes(self.upstream.as_str().as_bytes())
            .bytes(&self.message)
            .optional(self.state.as_deref())
            .list(asked.iter().map(Vec::as_slice))
            .number(self.since)
            .number(self.until)
            .number(self.progress.to_bits());
        Bytes::from(record.finish())
    }

    pub(super) fn read(record: Bytes) -> Option<Self> {
        let mut fields = Decoder::new(FORMAT, record)?;
        let read = Self {
            owner: ReplicaId::new(&fields.text()?)?,
            stage: Stage::of(fields.byte()?)?,
            step: fields.number()?,
            round: fields.byte()?,
            waits: fields.byte()?,
            upstream: UpstreamId::new(&fields.text()?).ok()?,
            message: fields.bytes()?,
            state: fields.optional()?,
            asked: fields
                .list()?
                .into_iter()
                .map(Asked::read)
                .collect::<Option<_>>()?,
            since: fields.number()?,
            until: fields.number()?,
            progress: f64::from_bits(fields.number()?),
        };
        fields.end()?;
        Some(read)
    }
}

/// The address of a url elicitation.
pub(super) fn url_of(method: Method, params: Option<&Bytes>) -> Option<String> {
    let member = |key| params.and_then(|params| json::string(json::member(params, key)?));
    let is_url = method == Method::ElicitationCreate && member("mode").as_deref() == Some("url");
    is_url.then(|| member("url").unwrap_or_default().into_owned())
}

/// `notifications/elicitation/complete`.
pub(super) fn complete(elicitation: &str) -> Bytes {
    let elicitation = json::quote(elicitation);
    let params = encode::object(&[("elicitationId", elicitation.as_bytes())]);
    encode::notification(Method::ElicitationComplete.as_str(), Some(&params))
}

fn text(fields: &mut Decoder) -> Option<Option<String>> {
    match fields.optional()? {
        Some(text) => String::from_utf8(text.to_vec()).ok().map(Some),
        None => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let asked = |key: &'static str, url: Option<&str>, answer: Option<&'static str>| Asked {
            key: Bytes::from_static(key.as_bytes()),
            method: Method::ElicitationCreate,
            id: Id::integer(7),
            url: url.map(|url| (url.to_owned(), "e".to_owned())),
            answer: answer.map(|answer| Bytes::from_static(answer.as_bytes())),
        };
        State {
            owner: ReplicaId::new("replica-1").unwrap(),
            stage: Stage::Asking,
            step: 3,
            round: 2,
            waits: 0,
            upstream: UpstreamId::new("up").unwrap(),
            message: Bytes::from_static(b"{}"),
            state: Some(Bytes::from_static(br#""s\/""#)),
            asked: vec![
                asked(r#""a""#, None, Some(r#"{"action":"decline"}"#)),
                asked(r#""b""#, Some("https://x"), Some(r#"{"action":"accept"}"#)),
                asked(r#""c""#, None, None),
            ],
            since: 1,
            until: 2,
            progress: 0.5,
        }
    }

    #[test]
    fn xt_136_a_state_is_read_as_it_was_written_and_a_cut_one_is_not() {
        let written = state().write();
        assert_eq!(State::read(written.clone()), Some(state()));
        for cut in 0..written.len() {
            assert_eq!(State::read(written.slice(..cut)), None, "{cut}");
        }
    }

    /// XT-131, MRT-11: keys and state are the tokens that came.
    #[test]
    fn xt_131_the_answers_are_what_the_client_said() {
        let answers = state().answers();
        assert_eq!(answers.state.unwrap(), r#""s\/""#);
        let expected = r#"{"a":{"action":"decline"},"b":{"action":"accept"}}"#;
        assert_eq!(answers.responses.unwrap(), expected);
        let none = State {
            asked: vec![],
            ..state()
        };
        assert_eq!(none.answers().responses, None);
    }

    /// XT-138: only a page that the user has gone to is not asked for again.
    #[test]
    fn xt_138_a_visited_page_is_known_again() {
        let state = state();
        let key = |text: &'static str| Bytes::from_static(text.as_bytes());
        assert!(state.asked[1].is_visited(&key(r#""\u0062""#), "https://x"));
        assert!(!state.asked[1].is_visited(&key(r#""b""#), "https://y"));
        assert!(!state.asked[1].is_visited(&key(r#""a""#), "https://x"));
        assert!(!state.asked[0].is_visited(&key(r#""a""#), "https://x"));
    }
}
