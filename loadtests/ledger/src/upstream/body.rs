//! Bodies of answers: whole ones, and those that are fed piece by piece.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc;

/// Pieces that may wait for the connection.
const PIECES: usize = 4;

/// The connection is to be broken off.
#[derive(Debug)]
pub(super) struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("broken off")
    }
}

impl std::error::Error for Broken {}

/// A body that a task feeds; the sender notices when its connection has gone.
pub(super) type Feed = mpsc::Sender<Result<Bytes, Broken>>;

#[derive(Debug)]
pub(super) enum Pieces {
    Whole(Option<Bytes>),
    Fed(mpsc::Receiver<Result<Bytes, Broken>>),
}

impl Pieces {
    pub(super) fn fed() -> (Feed, Self) {
        let (feed, pieces) = mpsc::channel(PIECES);
        (feed, Self::Fed(pieces))
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Fed(pieces) => pieces
                .poll_recv(context)
                .map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }
}
