//! Which way a method goes. Exhaustive: a method that is added to the table must be placed here.

use vestibule_catalog::Kind;
use vestibule_terms::Method;

/// Where a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Here, from what is known.
    Local(Local),
    /// By the upstream that owns its target.
    One(Target),
    /// By all upstreams of the server, merged; by the one of a transparent server, page by page.
    FanOut(FanOut),
    /// By a stream that lives until the client ends it.
    Stream,
    /// Nowhere: not a request a client may make of the router.
    Unknown,
}

/// What is answered here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Local {
    /// What the server offers.
    View,
    /// Nothing but that it is there.
    Ping,
}

/// What decides which upstream a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// `params.name` of a tool or prompt.
    Name(Kind),
    /// `params.uri`.
    Uri,
    /// `params.ref`.
    Reference,
}

/// What goes to several upstreams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FanOut {
    /// A list.
    List(Kind),
    /// The log level of a legacy session.
    Level,
}

/// The way of a method.
pub(crate) fn route(method: Method) -> Route {
    match method {
        Method::Initialize | Method::ServerDiscover => Route::Local(Local::View),
        Method::Ping => Route::Local(Local::Ping),
        Method::ToolsList => Route::FanOut(FanOut::List(Kind::Tools)),
        Method::PromptsList => Route::FanOut(FanOut::List(Kind::Prompts)),
        Method::ResourcesList => Route::FanOut(FanOut::List(Kind::Resources)),
        Method::ResourcesTemplatesList => Route::FanOut(FanOut::List(Kind::Templates)),
        Method::LoggingSetLevel => Route::FanOut(FanOut::Level),
        Method::ToolsCall => Route::One(Target::Name(Kind::Tools)),
        Method::PromptsGet => Route::One(Target::Name(Kind::Prompts)),
        Method::ResourcesRead | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
            Route::One(Target::Uri)
        }
        Method::CompletionComplete => Route::One(Target::Reference),
        Method::SubscriptionsListen => Route::Stream,
        // Tasks are not offered, so nobody can have one to ask about.
        Method::TasksGet
        | Method::TasksResult
        | Method::TasksList
        | Method::TasksCancel
        | Method::TasksUpdate => Route::Unknown,
        // What servers send, and notifications.
        Method::SamplingCreateMessage
        | Method::ElicitationCreate
        | Method::RootsList
        | Method::Initialized
        | Method::Cancelled
        | Method::Progress
        | Method::Message
        | Method::RootsListChanged
        | Method::ToolsListChanged
        | Method::PromptsListChanged
        | Method::ResourcesListChanged
        | Method::ResourcesUpdated
        | Method::ElicitationComplete
        | Method::TasksStatus
        | Method::Tasks
        | Method::SubscriptionsAcknowledged => Route::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{FanOut, Route, route};
    use vestibule_catalog::Kind;
    use vestibule_terms::{Direction, Method, Revision};

    /// FRM-16: what no revision lets a client ask is answered nowhere, and lists are merged.
    #[test]
    fn frm_16_only_client_requests_have_a_way() {
        for &method in Method::ALL {
            let asked = Revision::ALL
                .iter()
                .any(|r| method.allowed(Direction::ClientRequest, *r));
            let tasks = method.as_str().starts_with("tasks/");
            assert_eq!(
                route(method) != Route::Unknown,
                asked && !tasks,
                "{method:?}"
            );
            let list = Kind::of(method).map(|kind| Route::FanOut(FanOut::List(kind)));
            assert_eq!(list.is_some(), method.is_list());
            assert!(list.is_none_or(|list| list == route(method)));
        }
    }
}
