//! `/livez`, `/readyz` and `/metrics`.
//!
//! *Alive* means that the process makes progress, nothing else: a restart helps only against a
//! stalled runtime. *Ready* means that new work may come: a configuration was applied, the store
//! was reached once, and the process is not draining. Neither asks upstreams, identity providers
//! or the store as it is now: when one of those is away for all replicas, taking all of them out
//! of service would make an outage of it.
//!
//! The three need no credential and no particular Host. Every other path is 404: without a
//! configured credential there is nothing else to administer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use vestibule_metrics::Metrics;

/// How often the watchdog's task shows that the runtime runs it.
const BEAT: Duration = Duration::from_secs(1);
/// Silence after which the runtime counts as stalled.
const STALLED: Duration = Duration::from_secs(10);

const JSON: &str = "application/json";

/// Whether new work may come. Clones are one handle.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Conditions>);

#[derive(Debug, Default)]
struct Conditions {
    configured: AtomicBool,
    store_reached: AtomicBool,
    draining: AtomicBool,
}

impl Readiness {
    /// A configuration is in force.
    pub fn configuration_applied(&self) {
        self.0.configured.store(true, Ordering::Release);
    }

    /// The store has answered once; that it is away later does not take this back.
    pub fn store_reached(&self) {
        self.0.store_reached.store(true, Ordering::Release);
    }

    /// The process is about to end.
    pub fn start_draining(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    /// Whether new work may come.
    pub fn is_ready(&self) -> bool {
        self.reasons().is_empty()
    }

    /// Why not; empty when ready.
    pub fn reasons(&self) -> Vec<&'static str> {
        let conditions = &self.0;
        [
            (
                !conditions.configured.load(Ordering::Acquire),
                "no configuration applied yet",
            ),
            (
                !conditions.store_reached.load(Ordering::Acquire),
                "store not reached yet",
            ),
            (conditions.draining.load(Ordering::Acquire), "draining"),
        ]
        .into_iter()
        .filter_map(|(holds, reason)| holds.then_some(reason))
        .collect()
    }
}

/// Watches that the runtimes make progress: on each, a task writes down when it last ran.
#[derive(Debug, Clone)]
pub struct Watchdog(Arc<[Watched]>);

/// One runtime; dropping it ends the task.
#[derive(Debug)]
struct Watched {
    pulse: Arc<Pulse>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Pulse {
    epoch: Instant,
    last_millis: AtomicU64,
}

impl Pulse {
    fn since_start(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn beat(&self) {
        self.last_millis
            .store(self.since_start(), Ordering::Release);
    }

    fn silence(&self) -> Duration {
        let last = self.last_millis.load(Ordering::Acquire);
        Duration::from_millis(self.since_start().saturating_sub(last))
    }
}

impl Watched {
    fn start(runtime: &Handle) -> Self {
        let pulse = Arc::new(Pulse {
            epoch: Instant::now(),
            last_millis: AtomicU64::new(0),
        });
        let beating = Arc::clone(&pulse);
        let task = runtime.spawn(async move {
            let mut ticks = interval(BEAT);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                beating.beat();
            }
        });
        Self {
            pulse,
            task: task.abort_handle(),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watchdog {
    /// Watches the current runtime and `others`, until the last clone is dropped.
    pub fn over<'a>(others: impl IntoIterator<Item = &'a Handle>) -> Self {
        let current = Watched::start(&Handle::current());
        let others = others.into_iter().map(Watched::start);
        Self(std::iter::once(current).chain(others).collect())
    }

    /// Whether every runtime has run its task lately.
    pub fn is_alive(&self) -> bool {
        self.0
            .iter()
            .all(|watched| watched.pulse.silence() < STALLED)
    }
}

/// What the three answers are made of.
#[derive(Debug, Clone)]
pub struct Health {
    /// Whether new work may come.
    pub readiness: Readiness,
    /// Whether the runtime makes progress.
    pub watchdog: Watchdog,
    /// What `/metrics` exposes.
    pub metrics: Metrics,
}

/// The three pages, for the admin listener and for the one of `telemetry.address`.
pub fn router(health: Health) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(nothing)
        .with_state(health)
}

async fn livez(State(health): State<Health>) -> Response<Body> {
    if health.watchdog.is_alive() {
        return status(StatusCode::OK, "alive", &[]);
    }
    tracing::error!("the runtime is stalled");
    status(
        StatusCode::SERVICE_UNAVAILABLE,
        "stalled",
        &["the runtime makes no progress"],
    )
}

async fn readyz(State(health): State<Health>) -> Response<Body> {
    let reasons = health.readiness.reasons();
    if reasons.is_empty() {
        return status(StatusCode::OK, "ready", &[]);
    }
    status(StatusCode::SERVICE_UNAVAILABLE, "not ready", &reasons)
}

async fn metrics(State(health): State<Health>) -> Response<Body> {
    answer(
        StatusCode::OK,
        Metrics::CONTENT_TYPE,
        health.metrics.expose(),
    )
}

async fn nothing() -> Response<Body> {
    let body = serde_json::json!({ "status": "not found" });
    answer(StatusCode::NOT_FOUND, JSON, body.to_string())
}

fn status(code: StatusCode, status: &str, reasons: &[&str]) -> Response<Body> {
    let body = serde_json::json!({ "status": status, "reasons": reasons });
    answer(code, JSON, body.to_string())
}

fn answer(code: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use http::{Method, Request};
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    fn health() -> Health {
        Health {
            readiness: Readiness::default(),
            watchdog: Watchdog::over([]),
            metrics: Metrics::new("1.2.3", "abc"),
        }
    }

    async fn ask(health: &Health, method: Method, path: &str) -> (StatusCode, String, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Body::empty())
            .unwrap();
        let response = router(health.clone()).oneshot(request).await.unwrap();
        let code = response.status();
        let kind = response.headers()[CONTENT_TYPE]
            .to_str()
            .unwrap()
            .to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_needs_configuration_and_store_and_ends_with_the_drain() {
        let health = health();
        let (code, _, body) = ask(&health, Method::GET, "/readyz").await;
        assert_eq!(code, 503);
        assert!(body.contains("no configuration applied yet"), "{body}");
        assert!(body.contains("store not reached yet"), "{body}");

        health.readiness.configuration_applied();
        assert_eq!(ask(&health, Method::GET, "/readyz").await.0, 503);
        health.readiness.store_reached();
        let (code, kind, body) = ask(&health, Method::GET, "/readyz").await;
        assert_eq!((code.as_u16(), kind.as_str()), (200, "application/json"));
        assert_eq!(body, r#"{"reasons":[],"status":"ready"}"#);

        health.readiness.start_draining();
        let (code, _, body) = ask(&health, Method::GET, "/readyz").await;
        assert_eq!(code, 503);
        assert_eq!(body, r#"{"reasons":["draining"],"status":"not ready"}"#);
        // a process that drains is alive: killing it early would cut its streams
        assert_eq!(ask(&health, Method::GET, "/livez").await.0, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_does_not_run_the_watchdog_is_not_alive() {
        let health = health();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(ask(&health, Method::GET, "/livez").await.0, 200);
        // time passes while nothing runs
        tokio::time::advance(Duration::from_secs(11)).await;
        health.watchdog.0[0]
            .pulse
            .last_millis
            .fetch_sub(11_000, Ordering::AcqRel);
        let (code, _, body) = ask(&health, Method::GET, "/livez").await;
        assert_eq!(code, 503);
        assert!(body.contains("stalled"), "{body}");
    }

    /// A worker that hangs is noticed though all else goes on.
    #[tokio::test(start_paused = true)]
    async fn every_runtime_is_watched() {
        let hanging = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap(); // and nobody runs it
        let watchdog = Watchdog::over([hanging.handle()]);
        assert!(watchdog.is_alive());
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!watchdog.is_alive());
        hanging.shutdown_background();
    }

    #[tokio::test]
    async fn the_watchdogs_task_ends_with_its_last_handle() {
        let watchdog = Watchdog::over([]);
        let task = Arc::downgrade(&watchdog.0[0].pulse);
        drop(watchdog);
        while task.upgrade().is_some() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn metrics_are_the_classic_text() {
        let health = health();
        let (code, kind, body) = ask(&health, Method::GET, "/metrics").await;
        assert_eq!(code, 200);
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        assert!(body.contains(r#"vestibule_build_info{commit="abc",version="1.2.3"} 1"#));
    }

    #[tokio::test]
    async fn head_is_get_without_a_body_and_nothing_can_be_written() {
        let health = health();
        for path in ["/livez", "/metrics"] {
            let (code, _, body) = ask(&health, Method::HEAD, path).await;
            assert_eq!((code.as_u16(), body.as_str()), (200, ""), "{path}");
        }
        let request = Request::post("/livez").body(Body::empty()).unwrap();
        let response = router(health).oneshot(request).await.unwrap();
        assert_eq!(response.status(), 405);
    }

    /// T58: without a credential there is no admin API, and nothing says that there could be.
    #[tokio::test]
    async fn t58_every_other_path_is_not_found() {
        let health = health();
        for path in [
            "/",
            "/admin/",
            "/admin/v1/tenants",
            "/livez/",
            "/mcp",
            "/metrics/x",
        ] {
            for method in [Method::GET, Method::POST] {
                let (code, _, body) = ask(&health, method, path).await;
                assert_eq!(
                    (code.as_u16(), body.as_str()),
                    (404, r#"{"status":"not found"}"#)
                );
            }
        }
    }
}
