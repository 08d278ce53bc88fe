//! All layers together, in their order: what one request passes, and where each refusal comes from.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{HeaderName, HeaderValue, Request, Response};
use tower::{Service, ServiceBuilder, ServiceExt};
use vestibule_auth::{Access, ApiKey, KeyHash, Keys};
use vestibule_frame::body::FrameBody;
use vestibule_metrics::Metrics;
use vestibule_middleware::Admitted;
use vestibule_middleware::accept::AcceptLayer;
use vestibule_middleware::address::{AddressGuard, AddressLimit};
use vestibule_middleware::auth::AuthLayer;
use vestibule_middleware::deadline::DeadlineLayer;
use vestibule_middleware::frame::FrameLayer;
use vestibule_middleware::head::HeadLayer;
use vestibule_middleware::origin::OriginLayer;
use vestibule_middleware::panic::PanicLayer;
use vestibule_middleware::plans::{Budget, Budgets, Plans, Rate};
use vestibule_middleware::preflight::PreflightLayer;
use vestibule_middleware::proxies::Proxies;
use vestibule_middleware::quota::{LocalQuotas, QuotaLayer};
use vestibule_middleware::route::RouteLayer;
use vestibule_middleware::size::SizeLayer;
use vestibule_terms::clock::ManualClock;
use vestibule_terms::plan::{Origins, ServerKind, ServerPlan, Visibility};
use vestibule_terms::{Accepts, Deadline, Principal, Record, ServerId, TenantId};

const ORDER: [&str; 12] = [
    "panic",
    "head",
    "route",
    "origin",
    "preflight",
    "address",
    "size",
    "auth",
    "quota",
    "deadline",
    "accept",
    "frame",
];
const KEY: &str = "vsk_ci_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const MAX_BODY: usize = 1000;

fn plan(tenant: &str) -> ServerPlan {
    ServerPlan {
        origins: Origins {
            listed: vec!["https://good.example".to_owned()],
            loopback: false,
        },
        visibility: Visibility::Everything,
        ..ServerPlan::new(
            TenantId::new(tenant).unwrap(),
            ServerId::new("default").unwrap(),
            ServerKind::Federated(Vec::new()),
        )
    }
}

fn keys() -> Keys {
    let key = ApiKey {
        hash: KeyHash::of(KEY),
        previous: None,
        expires: None,
        subject: Arc::from("bot"),
        groups: Arc::new([]),
        scopes: Arc::new([]),
        servers: Arc::new([]),
    };
    let records = HashMap::from([(Box::from("ci"), key)]);
    let tenant = |text| TenantId::new(text).unwrap();
    Keys::new([
        (tenant("acme"), Access::Keys(records)),
        (tenant("open"), Access::Open),
    ])
}

fn plans() -> Plans {
    let budget = |burst| Budget {
        rate: Rate {
            count: 1,
            per: Duration::from_secs(3600),
        },
        burst,
        in_flight: 100,
        streams: 100,
    };
    let budgets = |burst| Budgets {
        tenant: budget(burst),
        principal: budget(burst),
    };
    Plans::new([
        (vec![plan("acme")], budgets(1000)),
        (vec![plan("open")], budgets(2)),
    ])
}

/// Every layer of the room, as a pipeline puts them together, over a service that answers with the
/// facts it was given.
fn stack() -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone {
    let metrics = Metrics::new("0", "0");
    let limit = AddressLimit {
        rate: Rate {
            count: 1000,
            per: Duration::from_secs(1),
        },
        burst: 1000,
    };
    let guard = AddressGuard::new(Some(limit), Proxies::default(), metrics.clone());
    let end = tower::service_fn(|request: Request<FrameBody>| async move {
        let facts = request.extensions();
        let plan = facts.get::<Arc<ServerPlan>>().unwrap();
        let who = facts.get::<Arc<Principal>>().unwrap();
        assert!(facts.get::<Deadline>().is_some() && facts.get::<Accepts>().is_some());
        let text = format!("{} {}", plan.tenant, who.subject);
        Ok::<_, Infallible>(Response::new(Body::from(text)))
    });
    ServiceBuilder::new()
        .layer(PanicLayer)
        .layer(HeadLayer::new(MAX_BODY))
        .layer(RouteLayer::new(plans().shared()))
        .layer(OriginLayer::new(vec!["mcp.example".to_owned()]))
        .layer(PreflightLayer)
        .layer(guard.layer())
        .layer(SizeLayer::new(MAX_BODY))
        .layer(AuthLayer::new(
            keys().shared(),
            Arc::new(ManualClock::at(0)),
            Arc::clone(guard.penalties()),
            metrics.clone(),
        ))
        .layer(QuotaLayer::new(LocalQuotas::default(), metrics))
        .layer(DeadlineLayer::new())
        .layer(AcceptLayer::new())
        .layer(FrameLayer::new(vestibule_frame::Limits::default()))
        .service(Admitted::new(end))
}

type Head<'a> = &'a [(&'a str, &'a str)];

async fn send<S>(stack: &S, method: &str, uri: &str, head: Head<'_>) -> (Response<Body>, Record)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone,
{
    let record = Record::default();
    record.trace_stages();
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in head {
        request = request.header(*name, *value);
    }
    let body = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    let mut request = request.body(Body::from(body)).unwrap();
    let peer: SocketAddr = "192.0.2.1:4711".parse().unwrap();
    request.extensions_mut().insert(record.clone());
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = stack.clone().oneshot(request).await.unwrap();
    (response, record)
}

fn good<'a>() -> Vec<(&'a str, &'a str)> {
    vec![
        ("host", "mcp.example"),
        ("content-type", "application/json"),
        (
            "authorization",
            "Bearer vsk_ci_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ),
    ]
}

async fn text(response: Response<Body>) -> String {
    let body = FrameBody::new(response.into_body(), 1 << 20);
    String::from_utf8(body.read().await.unwrap().to_vec()).unwrap()
}

/// AUT-22: the one order, and every fact at its end.
#[tokio::test(start_paused = true)]
async fn aut_22_a_request_passes_every_stage_in_order() {
    let (response, record) = send(&stack(), "POST", "/mcp/acme", &good()).await;
    assert_eq!(response.status(), 200);
    assert_eq!(record.stages(), ORDER);
    assert_eq!(text(response).await, "acme bot");
}

/// AUT-22: where two stages would refuse, the earlier one does. Each row spoils one more stage, from
/// the last to the first.
#[tokio::test(start_paused = true)]
async fn aut_22_the_earlier_stage_refuses_first() {
    let stack = stack();
    let mut head = good();
    let spoil: [(&str, &str, &str, u16, &str); 6] = [
        ("/mcp/acme", "content-type", "text/plain", 415, "accept"),
        ("/mcp/acme", "authorization", "Bearer x", 401, "auth"),
        ("/mcp/acme", "content-length", "1001", 413, "size"),
        ("/mcp/gone", "x", "x", 404, "origin"),
        ("/mcp/gone", "origin", "null", 403, "origin"),
        ("/mcp/gone", "host", "evil.example", 403, "origin"),
    ];
    for (path, name, value, status, stage) in spoil {
        head.retain(|(other, _)| *other != name);
        head.push((name, value));
        let (response, record) = send(&stack, "POST", path, &head).await;
        assert_eq!(response.status(), status, "{name}");
        assert_eq!(record.stages().last(), Some(&stage), "{name}");
    }
    head.push(("mcp-session-id", "a"));
    head.push(("mcp-session-id", "b"));
    let (response, record) = send(&stack, "POST", "/mcp/gone", &head).await;
    assert_eq!(response.status(), 400);
    assert_eq!(record.stages().last(), Some(&"head"));
}

/// Case 141, ORG-05: a preflight ends before authentication.
#[tokio::test(start_paused = true)]
async fn case_141_a_preflight_needs_no_credential() {
    let head = [
        ("host", "mcp.example"),
        ("origin", "https://good.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization"),
    ];
    let (response, record) = send(&stack(), "OPTIONS", "/mcp/acme", &head).await;
    assert_eq!(response.status(), 204);
    assert_eq!(record.stages().last(), Some(&"preflight"));
}

/// Case 143: a 401 and a 429 can be read by the accepted origin's script.
#[tokio::test(start_paused = true)]
async fn case_143_refusals_carry_cors_headers() {
    let stack = stack();
    let head = [
        ("host", "mcp.example"),
        ("origin", "https://good.example"),
        ("content-type", "application/json"),
    ];
    let mut statuses = Vec::new();
    for path in ["/mcp/acme", "/mcp/open", "/mcp/open", "/mcp/open"] {
        let (response, _) = send(&stack, "POST", path, &head).await;
        statuses.push(response.status().as_u16());
        let headers = response.headers();
        assert_eq!(headers["access-control-allow-origin"], head[1].1);
        assert!(headers.contains_key("access-control-expose-headers"));
    }
    assert_eq!(statuses, [401, 200, 200, 429]);
}

/// STA-23: a quota's refusal echoes the id; refusals before the body do not.
#[tokio::test(start_paused = true)]
async fn sta_23_only_a_quota_knows_the_id() {
    let stack = stack();
    let head = [
        ("host", "mcp.example"),
        ("content-type", "application/json"),
    ];
    for _ in 0..2 {
        send(&stack, "POST", "/mcp/open", &head).await;
    }
    let (over, _) = send(&stack, "POST", "/mcp/open", &head).await;
    let json: serde_json::Value = serde_json::from_str(&text(over).await).unwrap();
    assert_eq!(
        (&json["id"], &json["error"]["code"]),
        (&7.into(), &(-31005).into())
    );
    let (refused, _) = send(&stack, "POST", "/mcp/acme", &head).await;
    let json: serde_json::Value = serde_json::from_str(&text(refused).await).unwrap();
    assert!(json.get("id").is_none());
}

/// T22: no header but the documented ones changes who is let in or where a request goes.
#[tokio::test(start_paused = true)]
async fn t22_foreign_headers_change_no_verdict() {
    let stack = stack();
    let names = [
        "x-tenant-id",
        "x-tenant",
        "tenant",
        "x-user",
        "x-user-id",
        "x-forwarded-user",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarded-for",
        "x-real-ip",
        "x-original-url",
        "x-rewrite-url",
        "x-http-method",
        "x-http-method-override",
        "x-method-override",
        "mcp-init-host",
        "mcp-tenant",
        "x-envoy-original-path",
        "x-envoy-external-address",
        "x-auth-request-user",
        "x-api-key",
        "api-key",
        "cookie",
        "proxy-authorization",
        "via",
        "forwarded",
        "true-client-ip",
        "cf-connecting-ip",
        "x-debug",
        "x-skip-auth",
        "x-internal",
        "x-amzn-oidc-data",
        "x-ms-client-principal",
        "x-goog-iap-jwt-assertion",
        "connection",
        "te",
        "upgrade",
        "keep-alive",
        "proxy-connection",
        "trailer",
    ];
    let values = ["open", "admin", "authorization", "127.0.0.1", "true"];
    for name in names {
        for value in values {
            let mut head = good();
            head.retain(|(other, _)| *other != "authorization");
            head.push((name, value));
            assert!(name.parse::<HeaderName>().is_ok() && HeaderValue::from_str(value).is_ok());
            let (response, record) = send(&stack, "POST", "/mcp/acme", &head).await;
            assert_eq!(response.status(), 401, "{name}: {value}");
            assert_eq!(record.tenant().map(TenantId::as_str), Some("acme"));
            assert_eq!(record.reason(), Some(&"missing"), "{name}: {value}");
        }
    }
}
