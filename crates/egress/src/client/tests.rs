//! The client against real sockets on loopback.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::{Client, EgressError, Lookup, Options, Policy, Rule, Rules};
use axum::body::Body;
use http::{Request, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

async fn bind() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn open(address: SocketAddr) -> Client {
    let policy = Policy::default().allow_literal_loopback([address]);
    Client::new(Arc::new(policy), &Options::default())
}

fn post(uri: String) -> Request<Body> {
    Request::post(uri).body(Body::from("{}")).unwrap()
}

/// Reads one request of which the body is `{}`; `None` when the peer closed instead.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut seen = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk).await.ok()?;
        if read == 0 {
            return None;
        }
        seen.extend_from_slice(chunk.get(..read)?);
        if seen.ends_with(b"\r\n\r\n{}") {
            return String::from_utf8(seen).ok();
        }
    }
}

const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A resolver that answers from a fixed list and counts.
struct Fixed(Vec<IpAddr>, AtomicUsize);

impl Lookup for Fixed {
    fn lookup(
        &self,
        _name: String,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

fn fixed(addresses: &[&str]) -> Arc<Fixed> {
    let addresses = addresses.iter().map(|text| text.parse().unwrap());
    Arc::new(Fixed(addresses.collect(), AtomicUsize::new(0)))
}

fn with_lookup(policy: Policy, lookup: Arc<dyn Lookup>) -> Client {
    let options = Options {
        lookup,
        ..Options::default()
    };
    Client::new(Arc::new(policy), &options)
}

fn rules(private: &[&str], http: &[&str]) -> Policy {
    let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect();
    Policy::new(&Rules {
        private: texts(private),
        http: texts(http),
        deny: Vec::new(),
    })
    .unwrap()
}

/// Longer than any connection of these tests takes.
const SOON: Duration = Duration::from_secs(60);

/// Cases 133 and 135: what goes out is what the caller wrote, plus the host and the framing.
#[tokio::test]
async fn case_133_case_135_headers_leave_as_they_were_given() {
    let (listener, address) = bind().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let seen = read_request(&mut stream).await.unwrap();
        stream.write_all(EMPTY).await.unwrap();
        seen
    });
    let mut request = post(format!("http://{address}/mcp"));
    let headers = request.headers_mut();
    headers.insert("content-type", "application/json".parse().unwrap());
    headers.insert(
        "accept",
        "application/json, text/event-stream".parse().unwrap(),
    );
    let response = open(address).request(request, SOON).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let seen = server.await.unwrap();
    let mut lines: Vec<&str> = seen.lines().collect();
    lines.sort_unstable();
    let host = format!("host: {address}");
    assert_eq!(
        lines,
        [
            "",
            "POST /mcp HTTP/1.1",
            "accept: application/json, text/event-stream",
            "content-length: 2",
            "content-type: application/json",
            host.as_str(),
            "{}",
        ]
    );
}

/// T54: loopback that nobody opened is refused before a packet leaves, and says which rule.
#[tokio::test]
async fn t54_a_refused_target_is_never_connected_to() {
    let (listener, address) = bind().await;
    let client = Client::new(Arc::default(), &Options::default());
    for (scheme, rule) in [("https", Rule::Loopback), ("http", Rule::Http)] {
        let error = client
            .request(post(format!("{scheme}://{address}/")), SOON)
            .await
            .unwrap_err();
        assert!(
            matches!(error, EgressError::Denied { rule: found } if found == rule),
            "{error:?}"
        );
        assert!(!error.may_have_been_sent());
    }
    let accepted = futures_poll(listener.accept()).await;
    assert!(!accepted, "somebody connected");
}

/// Whether the future is ready at once.
async fn futures_poll<F: Future>(future: F) -> bool {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// T55: a name that resolves to a refused address is refused on the address.
#[tokio::test]
async fn t55_a_name_that_resolves_to_loopback_is_denied() {
    let (_listener, address) = bind().await;
    let client = with_lookup(Policy::default(), fixed(&["127.0.0.1"]));
    let error = client
        .request(
            post(format!("https://rebind.example:{}/", address.port())),
            SOON,
        )
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            EgressError::Denied {
                rule: Rule::Loopback
            }
        ),
        "{error:?}"
    );
}

/// T55: of several addresses only those that pass are connected to, after a single lookup.
#[tokio::test]
async fn t55_the_connection_goes_to_the_very_address_that_passed() {
    let allowed = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let port = allowed.local_addr().unwrap().port();
    let lookup = fixed(&["127.0.0.1", "127.0.0.2"]);
    let resolver: Arc<dyn Lookup> = Arc::<Fixed>::clone(&lookup);
    let client = with_lookup(rules(&["127.0.0.2/32"], &["up.example"]), resolver);
    let server = tokio::spawn(async move {
        let (mut stream, _) = allowed.accept().await.unwrap();
        read_request(&mut stream).await.unwrap();
        stream.write_all(EMPTY).await.unwrap();
    });
    let uri = format!("http://up.example:{port}/mcp");
    assert_eq!(client.request(post(uri), SOON).await.unwrap().status(), 200);
    server.await.unwrap();
    assert_eq!(lookup.1.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_refused_connection_was_provably_not_sent() {
    let (listener, address) = bind().await;
    drop(listener);
    let error = open(address)
        .request(post(format!("http://{address}/")), SOON)
        .await
        .unwrap_err();
    let EgressError::Connect(cause) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(cause.kind(), io::ErrorKind::ConnectionRefused);
    assert!(!error.may_have_been_sent());
}

/// A lookup that never ends.
struct Silent;

impl Lookup for Silent {
    fn lookup(
        &self,
        _name: String,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn connecting_ends_at_its_timeout_whatever_part_is_slow() {
    let client = with_lookup(rules(&[], &["slow.example"]), Arc::new(Silent));
    for scheme in ["http", "https"] {
        for (patience, ends) in [(SOON, 10), (Duration::from_secs(3), 3)] {
            let start = tokio::time::Instant::now();
            let request = post(format!("{scheme}://slow.example/"));
            let error = client.request(request, patience).await.unwrap_err();
            assert!(matches!(error, EgressError::Timeout), "{error:?}");
            assert_eq!(start.elapsed().as_secs(), ends, "{scheme} {patience:?}");
        }
    }
}

/// SSE-13: a kept connection that breaks under a POST is reported, never silently repeated.
#[tokio::test]
async fn sse_13_a_post_on_a_reset_connection_is_not_repeated() {
    let (listener, address) = bind().await;
    let client = open(address);
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await.unwrap();
        stream.write_all(EMPTY).await.unwrap();
        let second = read_request(&mut stream).await;
        drop(stream);
        (listener, second)
    });
    let uri = format!("http://{address}/mcp");
    client.request(post(uri.clone()), SOON).await.unwrap();
    let error = client.request(post(uri), SOON).await.unwrap_err();
    assert!(error.may_have_been_sent(), "{error:?}");
    let (listener, second) = server.await.unwrap();
    assert!(second.is_some(), "the connection was kept");
    assert!(
        !futures_poll(listener.accept()).await,
        "the request was repeated"
    );
}

/// A connection that the other side has closed while it rested is found out before anything is
/// written to it, so that no request is lost on it.
#[tokio::test]
async fn a_connection_that_ended_at_rest_is_not_used_again() {
    let (listener, address) = bind().await;
    let client = open(address);
    let uri = format!("http://{address}/mcp");
    let (mut first, ()) = {
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await.unwrap();
            stream.write_all(EMPTY).await.unwrap();
            stream
        };
        let asked = async {
            client.request(post(uri.clone()), SOON).await.unwrap();
        };
        tokio::join!(served, asked)
    };
    first.shutdown().await.unwrap();
    drop(first);
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let seen = read_request(&mut stream).await;
        stream.write_all(EMPTY).await.unwrap();
        seen
    });
    // the end of the first connection may still be on its way
    let mut answered = client.request(post(uri.clone()), SOON).await;
    if answered.is_err() {
        answered = client.request(post(uri), SOON).await;
    }
    assert_eq!(answered.unwrap().status(), StatusCode::OK);
    assert!(server.await.unwrap().is_some());
}

/// A body that was read to its end gives its connection back; nobody uses it for a while, and it
/// is closed.
#[tokio::test]
async fn a_connection_is_used_again_and_closed_when_it_is_idle() {
    let (listener, address) = bind().await;
    let policy = Policy::default().allow_literal_loopback([address]);
    let options = Options {
        idle_timeout: Duration::from_millis(500),
        ..Options::default()
    };
    let client = Client::new(Arc::new(policy), &options);
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for _ in 0..2 {
            read_request(&mut stream).await.unwrap();
            let answer =
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
        read_request(&mut stream).await
    });
    for _ in 0..2 {
        let answer = client
            .request(post(format!("http://{address}/")), SOON)
            .await;
        let body = answer.unwrap().into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "hi");
    }
    assert_eq!(
        server.await.unwrap(),
        None,
        "closed after the second answer"
    );
}

/// SSE-11: giving up a streamed answer closes an HTTP/1.1 connection.
#[tokio::test]
async fn sse_11_dropping_a_body_closes_the_connection() {
    let (listener, address) = bind().await;
    let client = open(address);
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await.unwrap();
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n: \r\n";
        stream.write_all(head).await.unwrap();
        read_request(&mut stream).await
    });
    let response = client
        .request(post(format!("http://{address}/")), SOON)
        .await
        .unwrap();
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(server.await.unwrap(), None);
}

/// SSE-11: so does giving up the wait for a head.
#[tokio::test]
async fn sse_11_dropping_a_request_closes_the_connection() {
    let (listener, address) = bind().await;
    let client = open(address);
    let (arrived, at_server) = tokio::sync::oneshot::channel();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await.unwrap();
        arrived.send(()).unwrap();
        read_request(&mut stream).await
    });
    let waiting = client.request(post(format!("http://{address}/")), SOON);
    tokio::select! {
        _ = waiting => panic!("there is no answer"),
        _ = at_server => {}
    }
    assert_eq!(server.await.unwrap(), None);
}

/// T56: a redirect is an answer like any other; nothing is sent to its target.
#[tokio::test]
async fn t56_redirects_come_back_unfollowed() {
    let (listener, address) = bind().await;
    let client = open(address);
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await.unwrap();
        let head = b"HTTP/1.1 307 T\r\nlocation: /mcp/\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(head).await.unwrap();
    });
    let response = client
        .request(post(format!("http://{address}/mcp")), SOON)
        .await
        .unwrap();
    assert_eq!(response.status(), 307);
    server.await.unwrap();
}

#[tokio::test]
async fn a_request_without_an_origin_is_malformed() {
    let client = Client::new(Arc::default(), &Options::default());
    let error = client
        .request(post("/mcp".to_owned()), SOON)
        .await
        .unwrap_err();
    assert!(matches!(error, EgressError::Malformed(_)));
}

// === TLS ===

struct Tls {
    address: SocketAddr,
    root: rustls::pki_types::CertificateDer<'static>,
}

/// A TLS server that speaks what `alpn` says and answers every request with an empty 200.
async fn tls_server(alpn: &'static [u8]) -> Tls {
    let made = rcgen::generate_simple_self_signed(["up.example".to_owned()]).unwrap();
    let root = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![root.clone()], key)
        .unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    let (listener, address) = bind().await;
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            let io = hyper_util::rt::TokioIo::new(stream);
            let service =
                hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async move {
                    let text = format!("{:?}", request.version());
                    Ok::<_, std::convert::Infallible>(Response::new(text))
                });
            let server =
                hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
            tokio::spawn(async move { server.serve_connection(io, service).await.ok() });
        }
    });
    Tls { address, root }
}

fn tls_client(roots: Vec<rustls::pki_types::CertificateDer<'static>>) -> Client {
    let options = Options {
        extra_roots: roots,
        lookup: fixed(&["127.0.0.1"]),
        connect_timeout: Duration::from_secs(5),
        ..Options::default()
    };
    Client::new(Arc::new(rules(&["127.0.0.1/32"], &[])), &options)
}

#[tokio::test]
async fn alpn_chooses_the_version_of_http() {
    for (alpn, version) in [
        (&b"h2"[..], Version::HTTP_2),
        (&b"http/1.1"[..], Version::HTTP_11),
    ] {
        let server = tls_server(alpn).await;
        let uri = format!("https://up.example:{}/mcp", server.address.port());
        let client = tls_client(vec![server.root]);
        for _ in 0..2 {
            let response = client.request(post(uri.clone()), SOON).await.unwrap();
            assert_eq!(response.version(), version);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("{version:?}"));
        }
    }
}

#[tokio::test]
async fn a_certificate_nobody_vouches_for_is_a_tls_error() {
    let server = tls_server(b"http/1.1").await;
    let uri = format!("https://up.example:{}/mcp", server.address.port());
    let error = tls_client(Vec::new())
        .request(post(uri), SOON)
        .await
        .unwrap_err();
    assert!(matches!(error, EgressError::Tls(_)), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(!error.may_have_been_sent());
}
