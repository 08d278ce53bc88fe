//! The fixture as `rmcp` sees it: one handler that routes every method to the
//! modules that answer it. No protocol logic of its own.
#![expect(
    deprecated,
    reason = "the suite tests logging and subscriptions of revisions that still have them"
)]

use std::{
    borrow::Cow,
    sync::{Arc, Mutex},
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
        CompletionInfo, GetPromptRequestParams, GetPromptResponse, Implementation,
        ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
        LoggingLevel, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
        ReadResourceResponse, ServerCapabilities, ServerConfig, SetLevelRequestParams,
        SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
};
use serde_json::json;
use tokio::sync::broadcast;

use super::{
    Eras,
    announce::{Change, Listeners},
    catalog::CATALOG,
    content,
    questions::{Asked, Question, ask, is_modern},
    tools,
};

/// Changes that may wait for a slow listener.
const CHANGES: usize = 64;

/// What all instances of one process share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    eras: Eras,
    changes: broadcast::Sender<Change>,
}

impl Shared {
    pub(super) fn new(eras: Eras) -> Self {
        Self {
            eras,
            changes: broadcast::channel(CHANGES).0,
        }
    }
}

/// One instance of the fixture: of a legacy session, of a stdio process, or
/// of a single stateless request.
#[derive(Debug)]
pub struct FixtureServer {
    shared: Arc<Shared>,
    level: Mutex<LoggingLevel>,
    listeners: Listeners,
}

impl FixtureServer {
    /// A fixture on its own, as for stdio.
    #[must_use]
    pub fn new(eras: Eras) -> Self {
        Self::with(Arc::new(Shared::new(eras)))
    }

    pub(super) fn with(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            level: Mutex::new(LoggingLevel::Info),
            listeners: Listeners::default(),
        }
    }

    /// The level of the session's log.
    pub(super) fn level(&self) -> LoggingLevel {
        *self.level.lock().expect("no holder panics")
    }

    /// Tells every listener of the process and, in a legacy session, the caller.
    pub(super) async fn announce(&self, context: &RequestContext<RoleServer>, change: Change) {
        // No listener is no error.
        self.shared.changes.send(change.clone()).ok();
        if !is_modern(context) {
            // A session that just ended needs no announcement.
            self.listeners.tell(&context.peer, change).await.ok();
        }
    }
}

impl ServerHandler for FixtureServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_completions()
            .enable_logging()
            .build();
        let mut info =
            ServerConfig::new(capabilities).with_instructions("Fixtures of the conformance suite.");
        info.server_info =
            Implementation::new("vestibule-conformance-upstream", env!("CARGO_PKG_VERSION"));
        // What a handshake falls back to; a server without handshakes refuses them.
        info.protocol_version = match self.shared.eras {
            Eras::Legacy | Eras::Both => ProtocolVersion::V_2025_11_25,
            Eras::Modern => ProtocolVersion::V_2026_07_28,
        };
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.shared.eras.versions()
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if is_modern(&context) {
            return Err(ErrorData::method_not_found::<
                rmcp::model::SetLevelRequestMethod,
            >());
        }
        *self.level.lock().expect("no holder panics") = request.level;
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let start = request.argument.value;
        let values = ["paris", "park", "party", "test value"];
        let values = values
            .into_iter()
            .filter(|value| value.starts_with(&start))
            .map(str::to_owned)
            .collect();
        let completion = CompletionInfo::with_all_values(values)
            .map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(completion))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(CATALOG.tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        CATALOG.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        tools::call(self, request, context).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(CATALOG.prompts.clone()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let mut arguments = request.arguments.unwrap_or_default();
        let mut name = request.name.as_str();
        if name == "test_input_required_result_prompt" {
            let question = Question::property(
                "user_context",
                "What context should the prompt use?",
                "context",
                "string",
            );
            let answers = match ask(&context, &[question], request.input_responses, None).await? {
                Asked::Open(result) => return Ok(result.into()),
                Asked::Answered(answers) => answers,
            };
            arguments.insert(
                "arg1".to_owned(),
                answers["user_context"]["content"]["context"].clone(),
            );
            arguments.insert("arg2".to_owned(), json!("from the user"));
            name = "test_prompt_with_arguments";
        }
        content::prompt(name, &arguments)
            .map(Into::into)
            .ok_or_else(|| ErrorData::invalid_params(format!("Unknown prompt: {name}"), None))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(
            CATALOG.resources.clone(),
        ))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(
            CATALOG.resource_templates.clone(),
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        content::resource(&request.uri).map(Into::into)
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.listeners.watch(request.uri, true);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.listeners.watch(request.uri, false);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.listeners.accept(&self.shared.changes, requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.listeners.serve(context).await
    }
}
