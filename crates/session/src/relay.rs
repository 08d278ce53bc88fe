//! Notifications of one call on their way to its client: the client's own token, only what was
//! asked for, only what moves forward.

use bytes::Bytes;
use vestibule_exchange::LogLevel;
use vestibule_frame::{Draft, Id, encode};
use vestibule_terms::{Direction, Method, Revision};

/// What one call's client wants to hear of it.
#[derive(Debug, Clone)]
pub(crate) struct Relay {
    revision: Revision,
    /// The client's progress token, as it wrote it.
    token: Option<Id>,
    /// The least severe level it wants.
    level: Option<LogLevel>,
    strict: bool,
    last: Option<f64>,
    /// What is added to the values of a round that is not the first (8.1).
    offset: Option<f64>,
}

impl Relay {
    /// For a call whose request asked for this.
    pub(crate) fn new(
        revision: Revision,
        token: Option<Id>,
        level: Option<LogLevel>,
        strict: bool,
    ) -> Self {
        Self {
            revision,
            token,
            level,
            strict,
            last: None,
            offset: None,
        }
    }

    /// Progress under the client's token, byte for byte (PRG-01); none without a token (case 82),
    /// and none that does not increase (PRG-02).
    pub(crate) fn progress(&mut self, mut draft: Draft) -> Option<Vec<Bytes>> {
        let token = self.token.as_ref()?;
        let frame = draft.frame();
        let params = frame.params()?;
        let value = frame
            .member(params, "progress")
            .and_then(|span| number(frame.text(span)))?;
        let value = value + self.offset.unwrap_or_default();
        if !value.is_finite() {
            return None;
        }
        if self.last.is_some_and(|last| value <= last) {
            return None;
        }
        draft.set_member(params, "progressToken", token.token());
        if self.offset.is_some() {
            draft.set_member(params, "progress", Bytes::from(value.to_string()));
            draft.remove_member(params, "total");
        }
        if self.strict && self.revision == Revision::R2024_11_05 {
            draft.remove_member(params, "message"); // PRG-04
        }
        self.last = Some(value);
        Some(draft.chunks())
    }

    /// The newest value that the client has been told.
    pub(crate) fn reached(&self) -> f64 {
        self.last.unwrap_or_default()
    }

    /// The upstream begins anew: what it says from now on comes after `reached`.
    pub(crate) fn next_round(&mut self, reached: f64) {
        self.last = Some(reached);
        self.offset = Some(reached);
    }

    /// Nobody knows how far the client has been told: it hears of no more progress.
    pub(crate) fn silence(&mut self) {
        self.token = None;
    }

    /// Progress of our own while the call waits for its client (6.2).
    pub(crate) fn still_there(&mut self, value: f64) -> Option<Bytes> {
        let token = self.token.as_ref()?.token();
        if !value.is_finite() || self.last.is_some_and(|last| value <= last) {
            return None;
        }
        self.next_round(value);
        let value = value.to_string();
        let params = encode::object(&[("progressToken", &token), ("progress", value.as_bytes())]);
        Some(encode::notification(
            Method::Progress.as_str(),
            Some(&params),
        ))
    }

    /// A log message, if it was asked for at this level (LOG-03).
    pub(crate) fn log(&self, level: LogLevel, draft: &Draft) -> Option<Vec<Bytes>> {
        self.level
            .filter(|wanted| level >= *wanted)
            .map(|_| draft.chunks())
    }
}

/// Whether a notification is about the session as a whole, wherever it came from.
pub(crate) fn is_change(method: Method) -> bool {
    is_list_change(method) || method == Method::ResourcesUpdated
}

/// Whether it says that a list has changed.
pub(crate) fn is_list_change(method: Method) -> bool {
    matches!(
        method,
        Method::ToolsListChanged | Method::PromptsListChanged | Method::ResourcesListChanged
    )
}

/// The method of a notification, if the client's revision has it.
pub(crate) fn notice_method(draft: &Draft, revision: Revision) -> Option<Method> {
    Method::parse(&draft.frame().method()?)
        .filter(|method| method.allowed(Direction::ServerNotification, revision))
}

fn number(token: &[u8]) -> Option<f64> {
    std::str::from_utf8(token)
        .ok()?
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vestibule_frame::{Frame, Limits};

    fn progress(value: &str) -> Draft {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"g:1","progress":{value},"message":"m"}}}}"#
        );
        Draft::new(Frame::parse(Bytes::from(text), &Limits::default()).unwrap())
    }

    fn relay(token: Option<&'static str>, revision: Revision, strict: bool) -> Relay {
        let token =
            token.map(|token| Id::from_token(Bytes::from_static(token.as_bytes())).unwrap());
        Relay::new(revision, token, None, strict)
    }

    /// PRG-01, case 81: type and spelling of the client's token are restored.
    #[test]
    fn prg_01_the_clients_token_is_restored_byte_for_byte() {
        for token in ["1", "\"1\"", "\"\\u0061\""] {
            let mut relay = relay(Some(token), Revision::R2025_11_25, false);
            let text = relay.progress(progress("0.5")).unwrap().concat();
            let text = String::from_utf8(text).unwrap();
            assert!(
                text.contains(&format!(r#""progressToken":{token},"#)),
                "{text}"
            );
        }
    }

    /// PRG-02, case 82: only increasing values, and only for those who asked.
    #[test]
    fn prg_02_values_that_do_not_increase_are_dropped() {
        let mut asked = relay(Some("7"), Revision::R2025_11_25, false);
        let seen =
            ["0", "1", "1", "0.5", "1e1"].map(|value| asked.progress(progress(value)).is_some());
        assert_eq!(seen, [true, true, false, false, true]);
        let mut silent = relay(None, Revision::R2025_11_25, false);
        assert!(silent.progress(progress("1")).is_none());
    }

    /// PRG-04: `message` is dropped only under `strict_fields`.
    #[test]
    fn prg_04_message_passes_unless_fields_are_strict() {
        for (strict, present) in [(false, true), (true, false)] {
            let mut relay = relay(Some("7"), Revision::R2024_11_05, strict);
            let text = String::from_utf8(relay.progress(progress("1")).unwrap().concat()).unwrap();
            assert_eq!(text.contains("message"), present);
        }
    }
}
