use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use super::*;
use crate::connection::{Connection, Http};

/// Notes when it is dropped, with the body that holds it.
struct Kept(Arc<Notify>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn body_of(data: Bytes, kept: Kept) -> Body {
    let pieces = stream::unfold((Some(data), kept), |(data, kept)| async move {
        let data = data?;
        Some((Ok::<_, Infallible>(data), (None, kept)))
    });
    Body::from_stream(pieces)
}

#[tokio::test]
async fn large_pieces_are_cut_and_nothing_is_lost() {
    let data: Bytes = (0..1_000_000u32).flat_map(u32::to_be_bytes).collect();
    for (answer, piece) in [
        (Answer::alone(Body::from(data.clone()), None), HTTP1_PIECE),
        (
            Stalls::default().hold(Body::from(data.clone()), None),
            H2_PIECE,
        ),
    ] {
        assert_eq!(answer.size_hint().exact(), Some(4_000_000));
        let (mut whole, mut answer) = (Vec::new(), answer);
        while let Some(frame) = answer.frame().await {
            let bytes = frame.unwrap().into_data().unwrap();
            assert!(bytes.len() <= piece);
            whole.extend_from_slice(&bytes);
            let left = u64::try_from(data.len() - whole.len()).unwrap();
            assert_eq!(answer.size_hint().exact(), Some(left));
            assert_eq!(answer.is_end_stream(), left == 0);
        }
        assert_eq!(whole, data);
    }
}

/// T24: as long as the peer has not taken an answer, its request is in flight.
#[tokio::test]
async fn t24_an_answer_that_is_not_taken_stays_in_flight() {
    let gone = Arc::new(Notify::new());
    let data = Bytes::from(vec![b'x'; 3 * HTTP1_PIECE]);
    let mut answer = Answer::alone(body_of(data, Kept(Arc::clone(&gone))), None);
    answer.frame().await.unwrap().unwrap();
    answer.frame().await.unwrap().unwrap();
    assert!(futures_util::poll!(std::pin::pin!(gone.notified())).is_pending());
    drop(answer);
    gone.notified().await;
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Answers pings for ever, and counts the bytes of data of each of two streams.
async fn alive(mut peer: DuplexStream, data: [Arc<AtomicUsize>; 2]) {
    let mut head = [0; 9];
    while peer.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        peer.read_exact(&mut payload).await.unwrap();
        match (head[3], head[8]) {
            (6, _) if head[4] == 0 => {
                peer.write_all(&frame(6, 1, 0, &payload)).await.unwrap();
            }
            (0, stream @ (1 | 3)) => {
                let of = &data[usize::from(stream / 2)];
                of.fetch_add(payload.len(), Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// T23: a stream whose window stays closed is let go after a minute, while the connection and a stream
/// that only has nothing to say go on.
#[tokio::test(start_paused = true)]
async fn t23_an_answer_without_a_window_is_let_go() {
    let (mut peer, ours) = duplex(1 << 20);
    let gone = Arc::new(Notify::new());
    let (quiet, told) = (Arc::new(Notify::new()), Arc::clone(&gone));
    let speak = Arc::clone(&quiet);
    let service = service_fn(move |request: Request<Incoming>| {
        let (told, speak) = (Arc::clone(&told), Arc::clone(&speak));
        async move {
            let body = match request.uri().path() {
                "/large" => body_of(vec![b'x'; 1 << 20].into(), Kept(told)),
                _ => Body::from_stream(stream::once(async move {
                    speak.notified().await;
                    Ok::<_, Infallible>("said")
                })),
            };
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let facts = Connection {
        peer: ([127, 0, 0, 1], 1).into(),
        local: ([127, 0, 0, 1], 2).into(),
        tls: false,
    };
    let (drain, cut) = (CancellationToken::new(), CancellationToken::new());
    let http = Http::new();
    let serving =
        tokio::spawn(async move { http.serve(ours, (facts, service), &drain, &cut).await });

    let get = |path: &str| {
        let mut block = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
        block.extend_from_slice(path.as_bytes());
        block
    };
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])); // windows of nothing
    bytes.extend(frame(1, 5, 1, &get("/large")));
    bytes.extend(frame(1, 5, 3, &get("/quiet")));
    bytes.extend(frame(8, 0, 3, &[0, 0, 0, 9])); // but this one has some
    peer.write_all(&bytes).await.unwrap();
    let data: [Arc<AtomicUsize>; 2] = Default::default();
    let (read, mut write) = (data.clone(), Instant::now());
    let talking = tokio::spawn(alive(peer, read));

    gone.notified().await;
    let waited = write.elapsed().as_secs();
    assert!((60..=75).contains(&waited), "{waited} s");
    assert!(!serving.is_finished(), "the connection goes on");
    quiet.notify_one();
    write = Instant::now();
    while data[1].load(Ordering::Relaxed) < 4 {
        tokio::time::sleep(Duration::from_millis(10)).await; // of paused time
        assert!(
            write.elapsed() < Duration::from_secs(5),
            "it has not spoken"
        );
    }
    assert_eq!(data[0].load(Ordering::Relaxed), 0);
    talking.abort();
    serving.await.unwrap();
}
