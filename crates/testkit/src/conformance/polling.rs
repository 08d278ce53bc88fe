//! Sessions whose streams a tool can end before its answer (2025-11-25
//! polling). `rmcp` can close such a stream but does not tell a handler which
//! one is its own; here every request carries the means to close it.

use std::time::Duration;

use futures_util::Stream;
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_server::session::{
        ServerSseMessage, SessionId, SessionManager,
        local::{LocalSessionHandle, LocalSessionManager, LocalSessionManagerError, SessionConfig},
    },
};
use tokio_stream::wrappers::ReceiverStream;

/// How long clients are told to wait before they resume.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// Closes the stream of the request it came with.
#[derive(Debug, Clone)]
pub(super) struct StreamCloser {
    session: LocalSessionHandle,
    stream: u64,
}

impl StreamCloser {
    /// Ends the stream; the answer is kept for a client that resumes.
    pub(super) async fn close(&self) -> Result<(), rmcp::ErrorData> {
        self.session
            .close_sse_stream(self.stream, Some(RETRY))
            .await
            .map_err(|error| rmcp::ErrorData::internal_error(error.to_string(), None))
    }
}

/// `rmcp`'s local sessions, with a [`StreamCloser`] in the extensions of every request.
#[derive(Debug)]
pub(super) struct PollingSessions {
    local: LocalSessionManager,
}

impl Default for PollingSessions {
    fn default() -> Self {
        let mut config = SessionConfig::default();
        config.sse_retry = Some(RETRY);
        let mut local = LocalSessionManager::default();
        local.session_config = config;
        Self { local }
    }
}

impl SessionManager for PollingSessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        self.local.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let session = self.local.sessions.read().await.get(id).cloned();
        let session = session
            .ok_or_else(|| LocalSessionManagerError::SessionNotFound(SessionId::clone(id)))?;
        let receiver = session.establish_request_wise_channel().await?;
        if let Some(stream) = receiver.http_request_id {
            message.insert_extension(StreamCloser {
                session: session.clone(),
                stream,
            });
        }
        session
            .push_message(message, receiver.http_request_id)
            .await?;
        Ok(ReceiverStream::new(receiver.inner))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.resume(id, last_event_id).await
    }
}
