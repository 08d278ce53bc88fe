//! The bare proxy passes both eras on, and with the scan refuses what is no message.

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use vestibule_load::target::Target;

use crate::{run, start_bare, start_stub};

#[tokio::test]
async fn both_eras_pass_with_and_without_the_scan() {
    let stub = start_stub().await;
    for scan in [false, true] {
        let url = start_bare(&stub, scan).await;
        for line in [
            "closed --requests 50 --connections 4",
            "closed --requests 50 --connections 4 --era modern",
            "closed --requests 10 --connections 2 --result-bytes 65536",
            "closed --requests 10 --connections 2 --events 5",
            "resume --rounds 5 --connections 2 --events 5 --cut 2",
        ] {
            let report = run(line, &url).await;
            assert!(report.broken.is_empty(), "{line}, scan {scan}: {report:?}");
        }
    }
}

#[tokio::test]
async fn the_scan_is_what_keeps_a_broken_message_out() {
    let stub = start_stub().await;
    // the stub reads loosely enough not to mind a member that stands there twice
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"ping","x":1,"x":2}"#;
    assert_eq!(status(&start_bare(&stub, false).await, twice).await, 200);
    assert_eq!(status(&start_bare(&stub, true).await, twice).await, 502);
}

async fn status(url: &str, body: &'static str) -> u16 {
    let target: Target = url.parse().unwrap();
    let stream = TcpStream::connect(target.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::post(target.path)
        .header("host", target.host)
        .body(Full::new(bytes::Bytes::from_static(body.as_bytes())))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    status
}
