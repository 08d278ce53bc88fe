//! An MCP server of revision 2026-07-28: no session, no state, every request stands alone.
//!
//! It tells and converts times. `wait` shows progress and is cancelled by closing the connection;
//! `convert` mirrors an argument into a header; `remind` asks its user a question in a second
//! round; `subscriptions/listen` reports that time goes on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::http::{self as web, Events};
use crate::rpc::{self, Message, Params, RpcError};

mod check;
mod describe;
mod state;
mod time;
mod tools;

use check::Meta;
use state::Seal;

/// How often subscribers hear that time has gone on.
const TICK: Duration = Duration::from_secs(1);
/// Resources that change.
const NOW: &str = "clock://now";
const WAITING: &str = "clock://waiting";

/// What all requests share: nothing of any of them.
#[derive(Debug)]
struct Clock {
    seal: Seal,
    /// Calls of `wait` that are going on.
    waiting: AtomicUsize,
    end: CancellationToken,
}

/// One checked request.
#[derive(Debug)]
struct Call {
    id: Value,
    method: String,
    params: Params,
    meta: Meta,
}

/// Serves the clock on `listener`, at the path `/mcp`, until `shutdown`.
pub async fn serve_clock(listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
    let seal = Seal::new().ok_or_else(|| io::Error::other("no randomness"))?;
    let clock = Arc::new(Clock {
        seal,
        waiting: AtomicUsize::new(0),
        end: shutdown.clone(),
    });
    web::serve(listener, shutdown, move |request| {
        answer(Arc::clone(&clock), request)
    })
    .await
}

async fn answer(clock: Arc<Clock>, request: Request<Incoming>) -> Response<Body> {
    if !web::is_post(&request) {
        return web::not_allowed("POST");
    }
    let (head, body) = match web::receive(request).await {
        Ok(received) => received,
        Err(refusal) => return refusal,
    };
    let (id, method, params) = match rpc::parse(&body) {
        Ok(Message::Request { id, method, params }) => (id, method, params),
        // without a session there is nothing a notification could belong to
        Ok(Message::Notification { .. }) => return web::empty(StatusCode::ACCEPTED),
        Ok(Message::Response { .. }) => {
            return web::bad_request(None, "a stateless server asks nothing");
        }
        Err(error) => return web::bad_message(&error),
    };
    let meta = match check::request(&head.headers, &method, &params) {
        Ok(meta) => meta,
        Err(error) if check::is_missing_meta(&error) => {
            return web::json(StatusCode::BAD_REQUEST, &error.to_message(Some(&id)));
        }
        Err(error) => return whole(&id, &Err(error)),
    };
    let call = Call {
        id,
        method,
        params,
        meta,
    };
    clock.dispatch(call).await
}

/// An answer that is one JSON message.
fn whole(id: &Value, outcome: &Result<Value, RpcError>) -> Response<Body> {
    let status = match outcome {
        Ok(_) => StatusCode::OK,
        Err(error) => check::status(error),
    };
    web::json(status, &rpc::answer(id, outcome))
}

/// Seconds since 1970.
fn unix_now() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.unwrap_or_default().as_secs()
}

/// Marks a result as final.
fn complete(mut result: Value) -> Value {
    result["resultType"] = json!("complete");
    result
}

/// Marks a result as final and says how long it may be kept; everything here is the same for
/// every caller.
fn cacheable(result: Value, ttl: Duration) -> Value {
    let mut result = complete(result);
    result["ttlMs"] = json!(ttl.as_millis());
    result["cacheScope"] = json!("public");
    result
}

/// What never changes while the server runs.
const FIXED: Duration = Duration::from_secs(3600);

impl Clock {
    async fn dispatch(self: Arc<Self>, call: Call) -> Response<Body> {
        let outcome = match call.method.as_str() {
            "server/discover" => Ok(cacheable(describe::server(), FIXED)),
            "tools/list" => Ok(cacheable(json!({ "tools": describe::tools() }), FIXED)),
            "tools/call" => return self.call_tool(call).await,
            "resources/list" => {
                let resources = json!({ "resources": describe::resources() });
                Ok(cacheable(resources, FIXED))
            }
            "resources/templates/list" => {
                let templates = json!({ "resourceTemplates": describe::templates() });
                Ok(cacheable(templates, FIXED))
            }
            "resources/read" => self.read(&call.params),
            "prompts/list" => Ok(cacheable(json!({ "prompts": describe::prompts() }), FIXED)),
            "prompts/get" => describe::prompt(&call.params).map(complete),
            "completion/complete" => describe::completion(&call.params).map(complete),
            "subscriptions/listen" => return self.listen(&call),
            other => Err(RpcError::method_not_found(other)),
        };
        whole(&call.id, &outcome)
    }

    fn read(&self, params: &Params) -> Result<Value, RpcError> {
        let uri = rpc::text(params, "uri")?;
        let place = uri
            .strip_prefix("clock://place/")
            .and_then(time::place)
            .map(|place| time::written(now(), place));
        let (text, ttl) = match (uri, place) {
            (NOW, _) => (time::written(now(), ("UTC", 0)), TICK),
            (WAITING, _) => {
                let waiting = self.waiting.load(Ordering::Relaxed);
                (waiting.to_string(), Duration::ZERO)
            }
            (_, Some(text)) => (text, TICK),
            (_, None) => {
                let error = RpcError::invalid_params("resource not found");
                return Err(error.with_data(json!({ "uri": uri })));
            }
        };
        let content = json!({ "uri": uri, "mimeType": "text/plain", "text": text });
        Ok(cacheable(json!({ "contents": [content] }), ttl))
    }

    fn listen(self: Arc<Self>, call: &Call) -> Response<Body> {
        let Some(Value::Object(filter)) = call.params.get("notifications") else {
            let error = RpcError::invalid_params("`notifications` must be an object");
            return whole(&call.id, &Err(error));
        };
        let wanted: Vec<&str> = filter
            .get("resourceSubscriptions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let honoured: Vec<&'static str> = [NOW, WAITING]
            .into_iter()
            .filter(|uri| wanted.contains(uri))
            .collect();
        // the stream ends itself, with its result
        let (events, response) = web::event_stream(CancellationToken::new());
        tokio::spawn(self.report(events, call.id.clone(), honoured));
        response
    }

    /// Feeds one subscription until its reader is gone or the server ends.
    async fn report(self: Arc<Self>, events: Events, id: Value, uris: Vec<&'static str>) {
        let mark = json!({ "io.modelcontextprotocol/subscriptionId": id });
        let mut filter = json!({});
        if !uris.is_empty() {
            filter["resourceSubscriptions"] = json!(uris);
        }
        let acknowledged = json!({ "_meta": mark, "notifications": filter });
        let method = "notifications/subscriptions/acknowledged";
        events.send(&rpc::notification(method, &acknowledged)).await;

        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks.tick().await; // the first one is now
        let mut waiting = self.waiting.load(Ordering::Relaxed);
        loop {
            tokio::select! {
                () = events.closed() => return,
                () = self.end.cancelled() => break,
                _ = ticks.tick() => {}
            }
            let before = std::mem::replace(&mut waiting, self.waiting.load(Ordering::Relaxed));
            for uri in uris.iter().filter(|uri| **uri == NOW || before != waiting) {
                let updated = json!({ "_meta": mark, "uri": uri });
                let message = rpc::notification("notifications/resources/updated", &updated);
                events.send(&message).await;
            }
        }
        let result = Ok(complete(json!({ "_meta": mark })));
        events.send(&rpc::answer(&id, &result)).await;
    }
}

fn now() -> i64 {
    i64::try_from(unix_now()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
