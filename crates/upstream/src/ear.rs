//! Which notifications on a call's way back are part of that call, and what they are to its client.

use bytes::Bytes;
use vestibule_exchange::{Event, LogLevel, Outbound};
use vestibule_frame::{Draft, Frame, json};
use vestibule_terms::Method;

use crate::ids::CallId;

/// Listens for one call.
#[derive(Debug)]
pub(crate) struct Ear {
    id: CallId,
    progress: bool,
    last: Option<f64>,
    level: Option<LogLevel>,
}

impl Ear {
    /// For the call of `id`.
    pub(crate) fn new(outbound: &Outbound, id: &CallId) -> Self {
        let (progress, level) = (outbound.progress, outbound.log_level);
        Self {
            id: id.clone(),
            progress,
            last: None,
            level,
        }
    }

    /// The event that a notification is; none when it is not for this call, not asked for, or of
    /// no known kind.
    pub(crate) fn notification(&mut self, method: Method, frame: Frame) -> Option<Event> {
        if method == Method::Progress {
            return self.progress(frame);
        }
        if method == Method::Message {
            return self.log(frame);
        }
        is_notice(method).then(|| Event::Notice(Draft::new(frame)))
    }

    /// PRG-02, PRG-03: of this call, and larger than the one before.
    fn progress(&mut self, frame: Frame) -> Option<Event> {
        if !self.progress || progress_token(&frame).as_deref() != Some(self.id.as_str()) {
            return None;
        }
        let params = frame.params()?;
        let value = frame.member(params, "progress")?;
        let value: f64 = std::str::from_utf8(frame.text(value)).ok()?.parse().ok()?;
        if self.last.is_some_and(|last| value <= last) {
            return None;
        }
        self.last = Some(value);
        Some(Event::Progress(Draft::new(frame)))
    }

    fn log(&self, frame: Frame) -> Option<Event> {
        let level = log_level(&frame)?;
        let wanted = self.level.is_some_and(|least| level >= least);
        wanted.then(|| Event::Log {
            level,
            message: Draft::new(frame),
        })
    }
}

/// The other notifications that servers send.
fn is_notice(method: Method) -> bool {
    matches!(
        method,
        Method::ToolsListChanged
            | Method::PromptsListChanged
            | Method::ResourcesListChanged
            | Method::ResourcesUpdated
            | Method::ElicitationComplete
            | Method::TasksStatus
            | Method::Tasks
            | Method::SubscriptionsAcknowledged
    )
}

/// The token of a progress notification, when it is one of ours: a string.
pub(crate) fn progress_token(frame: &Frame) -> Option<String> {
    let token = frame.member(frame.params()?, "progressToken")?;
    frame.string(token).map(std::borrow::Cow::into_owned)
}

/// The level of a log notification.
pub(crate) fn log_level(frame: &Frame) -> Option<LogLevel> {
    let level = frame.member(frame.params()?, "level")?;
    LogLevel::parse(&frame.string(level)?)
}

/// The listed strings of an array.
pub(crate) fn strings(array: &[u8]) -> Vec<String> {
    let text = |span: vestibule_frame::Span| {
        json::string(array.get(span.range())?).map(std::borrow::Cow::into_owned)
    };
    json::elements(array).filter_map(text).collect()
}

/// The versions in the `data` of an error, if it names any.
pub(crate) fn supported(frame: &Frame) -> Vec<String> {
    let data = frame.error_parts().and_then(|parts| parts.data);
    let listed = data.and_then(|data| frame.member(data, "supported"));
    listed
        .map(|listed| strings(frame.text(listed)))
        .unwrap_or_default()
}

/// A member of the result, raw.
pub(crate) fn result_member(frame: &Frame, key: &str) -> Option<Bytes> {
    let member = frame.member(frame.result()?, key)?;
    Some(frame.shared(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;
    use crate::testing::{frame, outbound};

    fn progress(token: &str, value: &str) -> Frame {
        frame(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{value}}}}}"#
        ))
    }

    /// PRG-02, PRG-03, case 82: unknown tokens and values that do not grow are dropped.
    #[test]
    fn case_82_only_growing_progress_of_the_calls_own_token_passes() {
        let id = Ids::new().call();
        let mut call = outbound(
            Method::ToolsCall,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
        );
        let own = format!("\"{}\"", id.as_str());
        let mut deaf = Ear::new(&call, &id);
        assert!(
            deaf.notification(Method::Progress, progress(&own, "1"))
                .is_none()
        );
        call.progress = true;
        let mut ear = Ear::new(&call, &id);
        let mut passes = |token: &str, value: &str| {
            ear.notification(Method::Progress, progress(token, value))
                .is_some()
        };
        assert!(passes(&own, "1"));
        assert!(!passes(&own, "1.0"));
        assert!(passes(&own, "1.5"));
        assert!(!passes(&own, "0.5"));
        assert!(!passes("\"tool-call-4\"", "9"));
        assert!(!passes("1", "9"));
        assert!(passes(&own, "2e0"));
    }

    #[test]
    fn logs_pass_when_asked_for_and_severe_enough() {
        let log = |level: &str| {
            frame(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1}}}}"#
            ))
        };
        let id = Ids::new().call();
        let mut call = outbound(
            Method::ToolsCall,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
        );
        assert!(
            Ear::new(&call, &id)
                .notification(Method::Message, log("error"))
                .is_none()
        );
        call.log_level = Some(LogLevel::Warning);
        let mut ear = Ear::new(&call, &id);
        assert!(ear.notification(Method::Message, log("error")).is_some());
        assert!(ear.notification(Method::Message, log("info")).is_none());
        assert!(ear.notification(Method::Message, log("loud")).is_none());
    }
}
