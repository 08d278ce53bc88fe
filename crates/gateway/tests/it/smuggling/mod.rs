//! T16, T17: a corpus of requests that two readers may divide differently, each sent raw to the gateway
//! and counted at a recording upstream. What the upstream gets are the calls that were answered, each
//! framed anew.

mod cases;

use serde_json::json;
use vestibule_testkit::RawClient;

use crate::harness::Gateway;
use crate::talk::{Upstream, modern_call, open_tenant};
use cases::{Case, cases};

/// What must become of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Want {
    /// One refusal, or none, and the connection closes. Nothing reaches the upstream.
    Refused,
    /// So many calls reach the upstream, each answered, and nothing else on the connection does.
    Answered(usize),
    /// The gateway waits for more. Nothing reaches the upstream.
    Silent,
}

/// Asks to be told that there is nothing, and to be let go: what is behind a case on its connection.
const LAST: &[u8] = b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";

/// The statuses of all answers up to the end of the connection.
async fn statuses(client: &mut RawClient) -> Vec<u16> {
    let mut statuses = Vec::new();
    while let Ok(answer) = client.response().await {
        statuses.push(answer.status);
    }
    client.closed().await.unwrap();
    statuses
}

async fn run(gateway: &Gateway, case: &Case) -> Result<(), String> {
    let mut client = gateway.connect().await;
    let mut bytes = case.bytes.clone();
    if case.want != Want::Silent {
        bytes.extend_from_slice(LAST);
    }
    // a peer that refuses early may close before it has read everything
    client.send(&bytes).await.ok();
    let answers = match case.want {
        Want::Silent => return Ok(()), // the client goes; what it began is counted at the end
        Want::Refused | Want::Answered(_) => statuses(&mut client).await,
    };
    let good = answers.iter().filter(|status| **status == 200).count();
    let fine = match case.want {
        Want::Refused => good == 0 && answers.len() <= 1,
        Want::Answered(calls) => good == calls && !answers.is_empty(),
        Want::Silent => true,
    };
    if fine {
        return Ok(());
    }
    Err(format!("{}: {:?}, but {answers:?}", case.name, case.want))
}

/// T16, T17, TRANSPORT: requests at the upstream = requests that were answered, in every case; no
/// case makes a call of what is none.
#[tokio::test]
async fn t16_t17_nothing_is_smuggled() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let (mut wrong, mut answered) = (Vec::new(), 0);
    let cases = cases();
    assert!(cases.len() >= 60, "{}", cases.len());
    for case in &cases {
        let before = upstream.calls();
        let verdict = run(&gateway, case).await;
        let reached = upstream.calls() - before;
        let wanted = match case.want {
            Want::Answered(calls) => calls,
            Want::Refused | Want::Silent => 0,
        };
        answered += wanted;
        if let Err(what) = verdict {
            wrong.push(format!("{what}; {reached} reached the upstream"));
        } else if reached != wanted {
            wrong.push(format!("{}: {reached} reached the upstream", case.name));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}: {wrong:#?}",
        wrong.len(),
        cases.len()
    );
    // the gateway is alive, and what was left open has not come after all
    let alive = gateway
        .ask(modern_call("/mcp/t/up", "echo", &json!({})))
        .await;
    assert_eq!(alive.status, 200);
    assert_eq!(upstream.calls(), answered + 1);
    for sent in upstream.peer.requests() {
        assert_eq!(
            sent.head.all("content-length").count(),
            1,
            "{:?}",
            sent.head
        );
        for field in [
            "transfer-encoding",
            "te",
            "trailer",
            "upgrade",
            "expect",
            "http2-settings",
        ] {
            assert_eq!(
                sent.field(field),
                None,
                "{field}: each request is framed anew"
            );
        }
    }
}
