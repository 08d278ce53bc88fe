//! The listener as a whole, over loopback sockets.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tower::service_fn;

use super::*;
use crate::{Limits, ListenError, TlsError, TlsFiles};

const ANY: &str = "127.0.0.1:0";

struct Running {
    address: SocketAddr,
    shutdown: Shutdown,
    serving: JoinHandle<Drained>,
    /// Set free by a test to let requests for `/wait` end.
    release: Arc<Notify>,
    /// A request for `/wait` has arrived.
    arrived: Arc<Notify>,
}

fn start_with(listener: Listener, grace: Duration) -> Running {
    let shutdown = Shutdown::new(grace);
    let (release, arrived) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let waits = (Arc::clone(&release), Arc::clone(&arrived));
    let service = service_fn(move |request: Request<Incoming>| {
        let (release, arrived) = (Arc::clone(&waits.0), Arc::clone(&waits.1));
        async move {
            let facts = *request.extensions().get::<Connection>().unwrap();
            if request.uri().path() == "/wait" {
                arrived.notify_one();
                release.notified().await;
            }
            let text = format!("{:?} {} {}", request.version(), facts.tls, facts.peer.ip());
            Ok(Response::new(Body::from(text)))
        }
    });
    Running {
        address: listener.local_addr(),
        serving: tokio::spawn(listener.serve(service, shutdown.clone())),
        shutdown,
        release,
        arrived,
    }
}

fn start(limits: Limits) -> Running {
    let listener = Listener::bind(ANY.parse().unwrap(), None, limits).unwrap();
    start_with(listener, Duration::from_secs(30))
}

async fn send(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Reads until the text, of which a body is never longer than one read.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut seen = String::new();
    while !seen.ends_with(end) {
        let mut chunk = [0; 1024];
        let read = stream.read(&mut chunk).await.unwrap();
        assert_ne!(read, 0, "closed after {seen:?}");
        seen.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
    }
    seen
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0; 16]).await, Ok(0) | Err(_))
}

#[tokio::test]
async fn a_request_knows_its_connection() {
    let running = start(Limits::default());
    let mut stream = send(running.address, "/").await;
    let answer = read_until(&mut stream, "HTTP/1.1 false 127.0.0.1").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn a_busy_port_is_an_error_that_names_it() {
    let first = Listener::bind(ANY.parse().unwrap(), None, Limits::default()).unwrap();
    let address = first.local_addr();
    let error = Listener::bind(address, None, Limits::default()).unwrap_err();
    assert!(matches!(error, ListenError::Busy { address: busy } if busy == address));
    assert!(error.to_string().contains(&address.to_string()));
}

#[tokio::test]
async fn draining_closes_idle_connections_and_lets_requests_end() {
    let running = start(Limits::default());
    let mut idle = send(running.address, "/").await;
    read_until(&mut idle, "127.0.0.1").await;
    let mut busy = send(running.address, "/wait").await;
    running.arrived.notified().await;

    running.shutdown.stop.cancel();
    assert!(is_closed(&mut idle).await);
    assert!(TcpStream::connect(running.address).await.is_err());
    assert!(!running.serving.is_finished());
    running.release.notify_one();
    let answer = read_until(&mut busy, "127.0.0.1").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(running.serving.await.unwrap(), Drained { cut: 0 });
}

#[tokio::test(start_paused = true)]
async fn requests_that_outlast_the_grace_are_cut() {
    let running = start(Limits::default());
    let mut busy = send(running.address, "/wait").await;
    running.arrived.notified().await;
    let start = tokio::time::Instant::now();
    running.shutdown.stop.cancel();
    assert_eq!(running.serving.await.unwrap(), Drained { cut: 1 });
    assert_eq!(start.elapsed().as_secs(), 30);
    assert!(is_closed(&mut busy).await);
}

#[tokio::test(start_paused = true)]
async fn force_cuts_at_once() {
    let running = start(Limits::default());
    let mut busy = send(running.address, "/wait").await;
    running.arrived.notified().await;
    let start = tokio::time::Instant::now();
    running.shutdown.stop.cancel();
    running.shutdown.force.cancel();
    assert_eq!(running.serving.await.unwrap(), Drained { cut: 1 });
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(is_closed(&mut busy).await);
}

/// T24: beyond the cap of an address a connection is closed, and a place is free again when one
/// has ended.
#[tokio::test]
async fn t24_connections_of_one_address_are_capped() {
    let running = start(Limits {
        connections: 100,
        per_address: Some(1),
    });
    let mut first = send(running.address, "/").await;
    read_until(&mut first, "127.0.0.1").await;
    let mut second = TcpStream::connect(running.address).await.unwrap();
    assert!(is_closed(&mut second).await);
    first.shutdown().await.unwrap();
    assert!(is_closed(&mut first).await);
    loop {
        // the place is free once the task of the first connection has ended
        let mut third = send(running.address, "/").await;
        let mut byte = [0];
        if matches!(third.read(&mut byte).await, Ok(1)) {
            break;
        }
    }
}

/// T26: beyond the cap in all, peers wait and are served when there is room.
#[tokio::test]
async fn t26_beyond_the_global_cap_peers_wait() {
    let running = start(Limits {
        connections: 1,
        per_address: None,
    });
    let mut first = send(running.address, "/").await;
    read_until(&mut first, "127.0.0.1").await;
    let mut second = send(running.address, "/").await;
    let waiting = std::pin::pin!(second.read_u8());
    assert!(futures_util::poll!(waiting).is_pending());
    drop(first);
    read_until(&mut second, "127.0.0.1").await;
}

/// T24: a peer that connects and says nothing, or never ends its head, is closed after 10 s.
#[tokio::test(start_paused = true)]
async fn t24_silent_and_slow_heads_are_closed() {
    let running = start(Limits::default());
    for bytes in [
        "",
        "P",
        "PRI * HTTP/2.0",
        // settings, and a header block that does not end
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x01\0\0\0\x01\0",
        "GET / HTTP/1.1\r\nhost: x\r\n",
    ] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let start = tokio::time::Instant::now();
        // what the server has to say first does not count
        stream.read_to_end(&mut Vec::new()).await.ok();
        assert!((9..=11).contains(&start.elapsed().as_secs()), "{bytes:?}");
    }
}

/// T24: so is a peer that does not end, or does not begin, its TLS handshake.
#[tokio::test(start_paused = true)]
async fn t24_handshakes_that_do_not_end_are_closed() {
    let made = files("handshake");
    let listener =
        Listener::bind(ANY.parse().unwrap(), Some(&made.files), Limits::default()).unwrap();
    let running = start_with(listener, Duration::from_secs(5));
    for bytes in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let start = tokio::time::Instant::now();
        assert!(is_closed(&mut stream).await);
        assert!((9..=11).contains(&start.elapsed().as_secs()), "{bytes:?}");
    }
}

/// Between two requests a connection is kept longer than a head may take.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_for_over_a_minute() {
    let running = start(Limits::default());
    let mut stream = send(running.address, "/").await;
    read_until(&mut stream, "127.0.0.1").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    read_until(&mut stream, "127.0.0.1").await;
    let start = tokio::time::Instant::now();
    assert!(is_closed(&mut stream).await);
    assert!((74..=91).contains(&start.elapsed().as_secs()));
}

/// HDR-23: headers beyond what the pipeline answers for itself are 431 at the connection.
#[tokio::test]
async fn hdr_23_a_head_beyond_the_buffer_is_431() {
    let running = start(Limits::default());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let big = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}", "a".repeat(120 * 1024));
    stream.write_all(big.as_bytes()).await.ok();
    let mut seen = [0; 12];
    stream.read_exact(&mut seen).await.unwrap();
    assert_eq!(&seen, b"HTTP/1.1 431");
}

/// T16: a request with two lengths reaches nobody, and neither does what follows it.
#[tokio::test]
async fn t16_a_request_with_two_lengths_is_400_and_closes() {
    let running = start(Limits::default());
    for (before, lengths) in [
        (0, "content-length: 5\r\ntransfer-encoding: chunked"),
        (1, "Transfer-Encoding: chunked\r\nContent-Length: 5"),
    ] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        for _ in 0..before {
            stream
                .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                .await
                .unwrap();
            read_until(&mut stream, "127.0.0.1").await;
        }
        let smuggled = "0\r\n\r\nGET /wait HTTP/1.1\r\nhost: x\r\n\r\n";
        let text = format!("POST / HTTP/1.1\r\nhost: x\r\n{lengths}\r\n\r\n{smuggled}");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok();
        assert!(
            answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
            "{answer}"
        );
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
    let waited = running.arrived.notified();
    assert!(futures_util::poll!(std::pin::pin!(waited)).is_pending());
}

/// T17: an upgrade is not taken up; the request is answered as if it had not asked.
#[tokio::test]
async fn t17_upgrades_are_ignored() {
    let running = start(Limits::default());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
        .await
        .unwrap();
    let answer = read_until(&mut stream, "127.0.0.1").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

// === TLS ===

struct Files {
    folder: std::path::PathBuf,
    files: TlsFiles,
    root: rustls_pki_types::CertificateDer<'static>,
}

impl Drop for Files {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn files(name: &str) -> Files {
    let made = rcgen::generate_simple_self_signed(["gateway.example".to_owned()]).unwrap();
    let folder = std::env::temp_dir().join(format!("vestibule-tls-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let files = TlsFiles {
        certificate: folder.join("tls.crt"),
        key: folder.join("tls.key"),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let root = rustls_pki_types::CertificateDer::from_pem_slice(made.cert.pem().as_bytes());
    Files {
        folder,
        files,
        root: root.unwrap(),
    }
}

async fn connect_tls(
    running: &Running,
    root: &rustls_pki_types::CertificateDer<'static>,
    alpn: &[u8],
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(running.address).await.unwrap();
    let name = "gateway.example".try_into().unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

#[tokio::test]
async fn tls_serves_both_versions_by_alpn() {
    let made = files("alpn");
    let listener =
        Listener::bind(ANY.parse().unwrap(), Some(&made.files), Limits::default()).unwrap();
    let running = start_with(listener, Duration::from_secs(5));

    let mut stream = connect_tls(&running, &made.root, b"http/1.1").await;
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok();
    assert!(answer.ends_with("HTTP/1.1 true 127.0.0.1"), "{answer}");

    let stream = connect_tls(&running, &made.root, b"h2").await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let driver = tokio::spawn(connection);
    let request = Request::get("https://gateway.example/")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "HTTP/2.0 true 127.0.0.1");

    running.shutdown.stop.cancel();
    driver.await.unwrap().ok(); // told to go away
    assert_eq!(running.serving.await.unwrap(), Drained { cut: 0 });
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_said_with_its_file() {
    let made = files("wrong");
    let missing = TlsFiles {
        certificate: made.folder.join("none.crt"),
        ..made.files.clone()
    };
    let error = missing.load().unwrap_err();
    assert!(error.to_string().contains("none.crt"), "{error}");
    let swapped = TlsFiles {
        certificate: made.files.key.clone(),
        key: made.files.key.clone(),
    };
    assert!(matches!(swapped.load().unwrap_err(), TlsError::Empty(_)));
    let other = files("other");
    let mixed = TlsFiles {
        certificate: made.files.certificate.clone(),
        key: other.files.key.clone(),
    };
    assert!(matches!(
        mixed.load().unwrap_err(),
        TlsError::Unusable { .. }
    ));
}
