//! The GET stream of an upstream session: what belongs to no call comes over it (GET-06).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};
use tokio::time::sleep;
use vestibule_frame::{Frame, Kind};

use crate::fault::Fault;
use crate::legacy::live::{GetStream, HttpLine, Live};
use crate::legacy::resume::Cursor;
use crate::link::Link;
use crate::wire::Answer;

const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Opens the stream of a session, once. Returns at once; `Live::get` says how it went.
pub(crate) fn open(link: &Arc<Link>, live: &Arc<Live>, line: &Arc<HttpLine>) {
    if line.quirks.no_get.load(Ordering::Relaxed) {
        return;
    }
    let first = live.get.send_if_modified(|state| {
        let first = *state == GetStream::Unopened;
        if first {
            *state = GetStream::Opening;
        }
        first
    });
    if !first {
        return;
    }
    let reader = Reader {
        link: Arc::clone(link),
        live: Arc::clone(live),
        line: Arc::clone(line),
    };
    let over = live.over().clone();
    link.background().task(async move {
        tokio::select! {
            () = reader.run() => {}
            () = over.cancelled() => {}
        }
    });
}

struct Reader {
    link: Arc<Link>,
    live: Arc<Live>,
    line: Arc<HttpLine>,
}

/// What a connection came to.
enum Attempt {
    Opened(Box<Answer>),
    Later,
    Never,
}

fn count_as_open(state: &mut GetStream) -> bool {
    let opening = *state == GetStream::Opening;
    if opening {
        *state = GetStream::Open;
    }
    opening
}

impl Reader {
    async fn run(&self) {
        let mut cursor = Cursor::default();
        let mut failures = 0_u32;
        let mut first = true;
        loop {
            match self.attempt(&cursor).await {
                Attempt::Opened(answer) => {
                    cursor.connected();
                    failures = 0;
                    if first && self.live.was_attached {
                        self.live.peer.missed();
                    }
                    first = false;
                    self.live.get.send_replace(GetStream::Open);
                    self.read(*answer, &mut cursor).await;
                }
                Attempt::Later => failures += 1,
                Attempt::Never => {
                    self.live.get.send_replace(GetStream::Absent);
                    return;
                }
            }
            if failures == 1 {
                // the first call need not wait for an upstream that is in trouble
                self.live.get.send_if_modified(count_as_open);
            }
            let backoff = cursor.delay() * 2_u32.saturating_pow(failures.min(5));
            sleep(self.link.ids().jitter(backoff.min(BACKOFF_MAX))).await;
        }
    }

    async fn attempt(&self, cursor: &Cursor) -> Attempt {
        let headers = self.line.get_headers(cursor.last());
        match self.line.wire.send(&http::Method::GET, &headers, &[]).await {
            Ok(response) => self.judge(response),
            Err(Fault::NotSent(_) | Fault::Broken) => Attempt::Later,
            Err(error) => {
                tracing::info!(upstream.id = %self.link.upstream(), %error, "no GET stream");
                Attempt::Never
            }
        }
    }

    fn judge(&self, response: Response<Body>) -> Attempt {
        let status = response.status();
        if status.is_success() {
            return match Answer::new(response, self.line.wire.max_response()) {
                Ok(answer) if answer.is_stream() => Attempt::Opened(Box::new(answer)),
                Ok(_) | Err(_) => Attempt::Never,
            };
        }
        match status {
            StatusCode::METHOD_NOT_ALLOWED => {
                self.line.quirks.no_get.store(true, Ordering::Relaxed);
                Attempt::Never
            }
            // the session is gone: what uses it next opens another one
            StatusCode::NOT_FOUND if self.line.session_id.is_some() => {
                self.live.end();
                Attempt::Never
            }
            StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => Attempt::Later,
            status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => {
                Attempt::Later
            }
            _ => Attempt::Never,
        }
    }

    async fn read(&self, mut answer: Answer, cursor: &mut Cursor) {
        while let Ok(Some(item)) = answer.next().await {
            if !cursor.advance(&item) {
                continue;
            }
            match item.frames {
                Ok(frames) => frames.into_iter().for_each(|frame| self.hear(frame)),
                Err(_) => self
                    .link
                    .observe()
                    .violated("a malformed message on its GET stream"),
            }
        }
    }

    fn hear(&self, frame: Frame) {
        let is_question =
            frame.kind() == Kind::Request && frame.method().as_deref() != Some("ping");
        if is_question {
            self.line.quirks.asks_on_get.store(true, Ordering::Relaxed);
        }
        self.live.peer.hear(frame);
    }
}
