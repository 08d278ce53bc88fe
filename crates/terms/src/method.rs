//! The closed set of MCP methods and who may send which in which revision (method matrix 0.2).
//!
//! Anything not in this table is unknown: it is never passed through (FRM-16).

use crate::revision::Revision;

/// Who sends a message and what kind it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// A request by a client to a server.
    ClientRequest,
    /// A notification by a client.
    ClientNotification,
    /// A request by a server to a client (legacy only).
    ServerRequest,
    /// A notification by a server.
    ServerNotification,
}

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// A method of the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method { $($(#[$doc])* $variant,)* }

        impl Method {
            /// Every method.
            pub const ALL: &'static [Method] = &[$(Method::$variant,)*];

            /// The name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Method::$variant => $text,)* }
            }

            /// The method of exactly that name.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Method::$variant),)* _ => None }
            }
        }
    };
}

methods! {
    /// Opens a legacy session.
    Initialize = "initialize",
    /// Liveness of a legacy peer.
    Ping = "ping",
    /// Minimum level of log notifications of a legacy session.
    LoggingSetLevel = "logging/setLevel",
    /// Lists tools.
    ToolsList = "tools/list",
    /// Calls a tool.
    ToolsCall = "tools/call",
    /// Lists resources.
    ResourcesList = "resources/list",
    /// Lists resource templates.
    ResourcesTemplatesList = "resources/templates/list",
    /// Reads a resource.
    ResourcesRead = "resources/read",
    /// Subscribes to a resource (legacy).
    ResourcesSubscribe = "resources/subscribe",
    /// Ends such a subscription.
    ResourcesUnsubscribe = "resources/unsubscribe",
    /// Lists prompts.
    PromptsList = "prompts/list",
    /// Gets a prompt.
    PromptsGet = "prompts/get",
    /// Completes an argument.
    CompletionComplete = "completion/complete",
    /// Describes a modern server.
    ServerDiscover = "server/discover",
    /// Opens a modern stream of change notifications.
    SubscriptionsListen = "subscriptions/listen",
    /// State of a task.
    TasksGet = "tasks/get",
    /// Result of a task (2025-11-25).
    TasksResult = "tasks/result",
    /// Lists tasks (2025-11-25).
    TasksList = "tasks/list",
    /// Cancels a task.
    TasksCancel = "tasks/cancel",
    /// Answers a task's questions (extension).
    TasksUpdate = "tasks/update",
    /// Asks the client's model (legacy).
    SamplingCreateMessage = "sampling/createMessage",
    /// Asks the client's user (legacy).
    ElicitationCreate = "elicitation/create",
    /// Asks for the client's roots (legacy).
    RootsList = "roots/list",
    /// The client is ready.
    Initialized = "notifications/initialized",
    /// A request is no longer wanted.
    Cancelled = "notifications/cancelled",
    /// Progress of a request.
    Progress = "notifications/progress",
    /// A log message.
    Message = "notifications/message",
    /// The client's roots changed.
    RootsListChanged = "notifications/roots/list_changed",
    /// The server's tools changed.
    ToolsListChanged = "notifications/tools/list_changed",
    /// The server's prompts changed.
    PromptsListChanged = "notifications/prompts/list_changed",
    /// The server's resources changed.
    ResourcesListChanged = "notifications/resources/list_changed",
    /// A subscribed resource changed.
    ResourcesUpdated = "notifications/resources/updated",
    /// A url elicitation was completed.
    ElicitationComplete = "notifications/elicitation/complete",
    /// A task's state changed (2025-11-25).
    TasksStatus = "notifications/tasks/status",
    /// A task's state changed (extension).
    Tasks = "notifications/tasks",
    /// A listen stream is in place.
    SubscriptionsAcknowledged = "notifications/subscriptions/acknowledged",
}

impl Method {
    /// Whether this method may travel in `direction` under `revision` (matrix 0.2; over HTTP).
    ///
    /// The tasks extension is negotiated per request and counts as 2026-07-28 here.
    pub fn allowed(self, direction: Direction, revision: Revision) -> bool {
        match direction {
            Direction::ClientRequest => self.client_request(revision),
            Direction::ClientNotification => self.client_notification(revision),
            Direction::ServerRequest => self.server_request(revision),
            Direction::ServerNotification => self.server_notification(revision),
        }
    }

    fn client_request(self, revision: Revision) -> bool {
        let modern = revision.is_modern();
        let core_tasks = revision == Revision::R2025_11_25;
        let every_revision =
            self.is_list() || self.may_ask() || matches!(self, Method::CompletionComplete);
        let legacy = matches!(
            self,
            Method::Initialize
                | Method::Ping
                | Method::LoggingSetLevel
                | Method::ResourcesSubscribe
                | Method::ResourcesUnsubscribe
        );
        let stateless = matches!(
            self,
            Method::ServerDiscover | Method::SubscriptionsListen | Method::TasksUpdate
        );
        let tasks = matches!(self, Method::TasksGet | Method::TasksCancel);
        let blocking_tasks = matches!(self, Method::TasksResult | Method::TasksList);
        every_revision
            || (legacy && !modern)
            || (stateless && modern)
            || (tasks && (core_tasks || modern))
            || (blocking_tasks && core_tasks)
    }

    fn client_notification(self, revision: Revision) -> bool {
        let legacy = matches!(
            self,
            Method::Initialized | Method::RootsListChanged | Method::Progress | Method::Cancelled
        );
        let core_tasks = matches!(self, Method::TasksStatus);
        (legacy && !revision.is_modern()) || (core_tasks && revision == Revision::R2025_11_25)
    }

    fn server_request(self, revision: Revision) -> bool {
        let legacy = matches!(
            self,
            Method::Ping | Method::SamplingCreateMessage | Method::RootsList
        );
        let elicitation = matches!(self, Method::ElicitationCreate) && revision.elicitation().0;
        let tasks = matches!(
            self,
            Method::TasksGet | Method::TasksResult | Method::TasksList | Method::TasksCancel
        ) && revision == Revision::R2025_11_25;
        !revision.is_modern() && (legacy || elicitation || tasks)
    }

    fn server_notification(self, revision: Revision) -> bool {
        let every_revision = matches!(
            self,
            Method::Progress
                | Method::Message
                | Method::ToolsListChanged
                | Method::PromptsListChanged
                | Method::ResourcesListChanged
                | Method::ResourcesUpdated
        );
        let core = matches!(self, Method::ElicitationComplete | Method::TasksStatus);
        let stateless = matches!(self, Method::SubscriptionsAcknowledged | Method::Tasks);
        every_revision
            || (matches!(self, Method::Cancelled) && !revision.is_modern())
            || (core && revision == Revision::R2025_11_25)
            || (stateless && revision.is_modern())
    }

    /// Whether the name lies under `notifications/`.
    pub fn is_notification(self) -> bool {
        self.as_str().starts_with("notifications/")
    }

    /// The lists that paginate (PAG-01).
    pub const fn is_list(self) -> bool {
        matches!(
            self,
            Method::ToolsList
                | Method::ResourcesList
                | Method::ResourcesTemplatesList
                | Method::PromptsList
        )
    }

    /// The calls during which a server may ask for input (MRT-01).
    pub const fn may_ask(self) -> bool {
        matches!(
            self,
            Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead
        )
    }

    /// Whether the call may be repeated without asking anyone: it has no side effects (SSE-13).
    pub const fn is_repeatable(self) -> bool {
        matches!(
            self,
            Method::ToolsList
                | Method::ResourcesList
                | Method::ResourcesTemplatesList
                | Method::PromptsList
                | Method::ResourcesRead
                | Method::PromptsGet
                | Method::CompletionComplete
                | Method::ServerDiscover
                | Method::SubscriptionsListen
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back() {
        for &method in Method::ALL {
            assert_eq!(Method::parse(method.as_str()), Some(method));
        }
        assert_eq!(Method::parse("resources/write"), None);
        assert_eq!(Method::parse("tools/Call"), None);
    }

    /// FRM-14: directions are per method and revision; the modern era has no server requests.
    #[test]
    fn frm_14_directions_follow_the_matrix() {
        for &method in Method::ALL {
            assert!(!method.allowed(Direction::ServerRequest, Revision::R2026_07_28));
            assert!(!method.allowed(Direction::ClientNotification, Revision::R2026_07_28));
        }
        let client = |m: Method, r| m.allowed(Direction::ClientRequest, r);
        assert!(client(Method::Ping, Revision::R2025_11_25));
        assert!(!client(Method::Ping, Revision::R2026_07_28)); // PNG-03
        assert!(client(Method::TasksResult, Revision::R2025_11_25));
        assert!(!client(Method::TasksResult, Revision::R2026_07_28)); // TSX-10
        assert!(!client(Method::ResourcesUpdated, Revision::R2025_06_18));
        assert!(
            !Method::ElicitationCreate.allowed(Direction::ServerRequest, Revision::R2025_03_26)
        );
        assert!(Method::ElicitationCreate.allowed(Direction::ServerRequest, Revision::R2025_06_18));
    }
}
