//! Which revisions a fixture speaks: all, only those with a handshake, or only
//! the stateless one. A restricted fixture behaves like a server that never
//! heard of the other era.

use std::borrow::Cow;

use axum::{
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    middleware::Next,
    response::{IntoResponse, Response},
};
use rmcp::{
    ErrorData, RoleServer,
    model::{ClientNotification, ClientRequest, ProtocolVersion, ServerConfig, ServerResult},
    service::{NotificationContext, RequestContext, Service},
};

use super::FixtureServer;

/// The eras a fixture serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Eras {
    /// 2025-11-25 and before: handshake and sessions.
    Legacy,
    /// 2026-07-28: no handshake, no sessions.
    Modern,
    /// Whichever the client asks for.
    Both,
}

impl Eras {
    /// The revisions to advertise and accept.
    pub(super) fn versions(self) -> Cow<'static, [ProtocolVersion]> {
        match self {
            Self::Legacy => {
                Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25))
            }
            Self::Modern => Cow::Borrowed(&[ProtocolVersion::V_2026_07_28]),
            Self::Both => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
        }
    }
}

/// Refuses what a server without the modern era would refuse: 400 for the
/// unknown revision, in the words common among such servers.
pub(super) async fn gate(State(eras): State<Eras>, request: Request, next: Next) -> Response {
    let revision = request.headers().get("mcp-protocol-version");
    let modern = revision
        .is_some_and(|value| value.as_bytes() == ProtocolVersion::V_2026_07_28.as_str().as_bytes());
    if eras == Eras::Legacy && modern {
        let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Unsupported protocol version: 2026-07-28"},"id":null}"#;
        return (
            StatusCode::BAD_REQUEST,
            [(CONTENT_TYPE, "application/json")],
            body,
        )
            .into_response();
    }
    next.run(request).await
}

/// A service that knows nothing of `server/discover`, for stdio, where no
/// header tells the era.
#[derive(Debug)]
pub(super) struct WithoutDiscovery(pub(super) FixtureServer);

impl Service<RoleServer> for WithoutDiscovery {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        if matches!(request, ClientRequest::DiscoverRequest(_)) {
            return Err(ErrorData::new(
                rmcp::model::ErrorCode::METHOD_NOT_FOUND,
                "Method not found",
                None,
            ));
        }
        self.0.handle_request(request, context).await
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        Service::get_info(&self.0)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Service::supported_protocol_versions(&self.0)
    }
}
