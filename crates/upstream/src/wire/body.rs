//! A request body made of the slices of a draft, with its length known, so that it goes out with
//! `Content-Length` and without being copied into one piece.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The slices that are still to be sent.
#[derive(Debug)]
pub(crate) struct Slices {
    rest: VecDeque<Bytes>,
    length: u64,
}

impl Slices {
    pub(crate) fn new(slices: &[Bytes]) -> Self {
        let length = slices.iter().map(Bytes::len).sum::<usize>();
        Self {
            rest: slices.iter().cloned().collect(),
            length: length as u64,
        }
    }
}

impl Body for Slices {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(slice) = self.rest.pop_front() else {
            return Poll::Ready(None);
        };
        self.length -= slice.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
