//! Upstream sessions end with the session of the client that they were opened for, whichever process
//! ends it (GET-09): also one that has never spoken to the upstream.

use std::time::Duration;

use serde_json::json;
use vestibule_testkit::redis::RedisServer;
use vestibule_testkit::{Answer, PATIENCE, RawRequest, Recorded, RecordingUpstream};

use crate::peers::{legacy_upstream, text_result};
use crate::process::Served;
use crate::replicas::replicated;
use crate::restart::{Client, house_of, kill};
use crate::talk::{at, open_tenant, soon, text};

const UP: &str = "/mcp/t/up";

/// Every tool answers with the upstream session it was called on.
async fn upstream() -> RecordingUpstream {
    let of_tools = |request: &Recorded| {
        let session = request.field("mcp-session-id").unwrap_or_default();
        let call = request.rpc_method() == "tools/call";
        call.then(|| Answer::result(request, &text_result(session)))
    };
    legacy_upstream(json!({ "tools": {} }), of_tools).await
}

/// Opens a session and an upstream session for it; the name of that.
async fn open(served: &Served) -> (Client, String) {
    let client = Client::open(served).await;
    let answer = client.echo(served).await.answer();
    let name = text(&answer);
    assert!(name.starts_with("session-"), "{name}");
    (client, name.to_owned())
}

async fn end(served: &Served, client: &Client) {
    let delete = RawRequest::new("DELETE", UP).field("Host", "127.0.0.1");
    assert_eq!(served.ask(&client.dressed(delete)).await.status, 204);
}

fn ended(upstream: &RecordingUpstream) -> Vec<String> {
    let requests = upstream.requests().into_iter();
    let deletes = requests.filter(|request| request.method == "DELETE");
    let names = deletes.map(|request| {
        request
            .field("mcp-session-id")
            .unwrap_or_default()
            .to_owned()
    });
    names.collect()
}

async fn is_ended(upstream: &RecordingUpstream, name: &str) {
    soon("the upstream session is ended", PATIENCE, async {
        while !ended(upstream).iter().any(|ended| ended == name) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn stop(mut served: Served) {
    served.program.signal("TERM");
    served.program.ended(Duration::from_secs(15)).await;
}

/// GET-09, SES-03: a DELETE ends the upstream session on a replica that holds nothing of it, also when
/// the one that opened it is dead; each is ended once.
#[tokio::test]
async fn get_09_whichever_replica_ends_a_session_ends_its_upstream_session() {
    let upstream = upstream().await;
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let tenant = open_tenant(&[("up", at(&upstream.url()))], "");
    let (_folder, file) = replicated(&redis, &tenant);
    let (a, b, c) = tokio::join!(
        Served::start(&file),
        Served::start(&file),
        Served::start(&file)
    );
    let (deleted, first) = open(&a).await;
    end(&b, &deleted).await;
    is_ended(&upstream, &first).await;
    soon("404 where it was opened", PATIENCE, async {
        while deleted.echo(&a).await.status != 404 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (of_the_dead, second) = open(&c).await;
    kill(c).await;
    end(&b, &of_the_dead).await;
    is_ended(&upstream, &second).await;
    stop(a).await;
    stop(b).await;
    let ended = ended(&upstream);
    for name in [first, second] {
        let times = ended.iter().filter(|ended| **ended == name).count();
        assert_eq!(times, 1, "{name} of {ended:?}");
    }
}

/// GET-09, EL-27: the same after a restart, when nothing is open any more.
#[tokio::test]
async fn get_09_the_next_process_ends_the_upstream_session() {
    let upstream = upstream().await;
    let (_folder, file) = house_of(&at(&upstream.url()), "");
    let served = Served::start(&file).await;
    let (client, name) = open(&served).await;
    kill(served).await;
    let served = Served::start(&file).await;
    end(&served, &client).await;
    is_ended(&upstream, &name).await;
}
