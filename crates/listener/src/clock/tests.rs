use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::*;

/// T24: one byte every few seconds does not make a head.
#[tokio::test(start_paused = true)]
async fn t24_a_head_that_drips_is_given_up_after_ten_seconds() {
    let (mut peer, ours) = duplex(64);
    let mut timed = Timed::new(ours, Clocks::DEFAULT, Arc::default());
    tokio::spawn(async move {
        loop {
            peer.write_all(b"x").await.ok();
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    });
    let start = Instant::now();
    let mut byte = [0];
    let error = loop {
        if let Err(error) = timed.read_exact(&mut byte).await {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn between_requests_silence_has_its_own_longer_limit() {
    let (_peer, ours) = duplex(64);
    let activity = Arc::new(Activity::default());
    let mut timed = Timed::new(ours, Clocks::DEFAULT, Arc::clone(&activity));
    assert!(activity.begin(false).is_some());
    let start = Instant::now();
    let error = timed.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed().as_secs(), 75);
}

#[tokio::test(start_paused = true)]
async fn while_a_request_is_served_silence_has_no_limit() {
    let (_peer, ours) = duplex(64);
    let activity = Arc::new(Activity::default());
    let mut timed = Timed::new(ours, Clocks::DEFAULT, Arc::clone(&activity));
    let _in_flight = activity.begin(false);
    let hours = Duration::from_secs(7_200);
    assert!(tokio::time::timeout(hours, timed.read_u8()).await.is_err());
}

/// T24: a peer that reads nothing is given up.
#[tokio::test(start_paused = true)]
async fn t24_a_peer_that_takes_no_data_is_given_up() {
    let (_peer, ours) = duplex(8);
    let mut timed = Timed::new(ours, Clocks::DEFAULT, Arc::default());
    let start = Instant::now();
    let error = timed.write_all(&[0; 64]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed().as_secs(), 60);
}

/// T23: who always has more to say is interrupted now and then.
#[tokio::test]
async fn t23_a_connection_that_never_pauses_lets_others_go_first() {
    let (mut peer, ours) = duplex(1 << 20);
    peer.write_all(&vec![b'x'; 1 << 20]).await.unwrap();
    let mut timed = Timed::new(ours, Clocks::DEFAULT, Arc::default());
    let (mut pauses, mut whole, mut some) = (0, 0, vec![0; 8 * 1024]);
    while whole < 1 << 20 {
        let mut buf = ReadBuf::new(&mut some);
        let read = std::future::poll_fn(|cx| {
            Poll::Ready(Pin::new(&mut timed).poll_read(cx, &mut buf).is_ready())
        });
        if read.await {
            whole += buf.filled().len();
        } else {
            pauses += 1;
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(pauses, (1 << 20) / TURN - 1);
}
