//! What may be sent a second time, and when (SSE-13, STA-28). Nothing with side effects is ever
//! executed twice.

use std::time::Duration;

use vestibule_terms::Method;

use crate::fault::Fault;

/// Longest Retry-After that a call waits for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait before the call of `method` is made once more after `fault`; none when it must
/// not be. Requests that were provably not sent have been repeated below already.
pub(crate) fn after(fault: &Fault, method: Method, attempt: u32) -> Option<Duration> {
    if attempt > 0 || !method.is_repeatable() {
        return None;
    }
    match fault {
        // Whoever listens has missed something and must hear of it: he opens the next one (SUB-05).
        Fault::Broken if method == Method::SubscriptionsListen => None,
        Fault::Broken => Some(Duration::ZERO),
        Fault::Busy(Some(after)) if *after <= PATIENCE => Some(*after),
        Fault::Busy(_)
        | Fault::NotSent(_)
        | Fault::Timeout
        | Fault::Protocol(_)
        | Fault::Redirected(_)
        | Fault::Unauthorized
        | Fault::Status(_)
        | Fault::SessionLost
        | Fault::Incompatible
        | Fault::Unserved(_)
        | Fault::Full
        | Fault::Retired => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SSE-13: lists and reads are repeated once, tool calls never.
    #[test]
    fn sse_13_only_repeatable_methods_are_repeated_and_only_once() {
        let broken = Fault::Broken;
        assert_eq!(after(&broken, Method::ToolsList, 0), Some(Duration::ZERO));
        assert_eq!(after(&broken, Method::ToolsList, 1), None);
        assert_eq!(after(&broken, Method::ToolsCall, 0), None);
        assert_eq!(after(&Fault::Timeout, Method::ToolsList, 0), None);
        assert_eq!(after(&broken, Method::SubscriptionsListen, 0), None);
    }

    /// STA-28: Retry-After is honoured up to five seconds, for repeatable methods.
    #[test]
    fn sta_28_retry_after_is_honoured_up_to_five_seconds() {
        let busy = |seconds| Fault::Busy(Some(Duration::from_secs(seconds)));
        assert_eq!(after(&busy(5), Method::ResourcesRead, 0), Some(PATIENCE));
        assert_eq!(after(&busy(6), Method::ResourcesRead, 0), None);
        assert_eq!(after(&busy(1), Method::ToolsCall, 0), None);
        assert_eq!(after(&Fault::Busy(None), Method::ResourcesRead, 0), None);
    }
}
