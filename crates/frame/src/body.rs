//! A request body that nobody has read yet, with a cap on what may be read.
//!
//! It travels through the layers that decide on the head alone; the frame stage reads it whole, once,
//! and a quota's answer reads a prefix to echo the id. Dropping it, or a read that is still running,
//! gives the rest of the body up to the connection and frees what was buffered.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};

/// A lazy, capped body.
#[derive(Debug)]
pub struct FrameBody {
    inner: Body,
    cap: usize,
}

/// A body up to this size is copied out of the connection's read buffer. Copying it is cheaper
/// than what keeping it costs: the connection would need another buffer of 8 KiB to go on
/// listening with, for as long as the message lives, which a stream's may do for hours.
const SMALL: usize = 2 * 1024;

/// Why a body could not be read whole.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is larger than the cap.
    #[error("the body is larger than {cap} bytes")]
    TooLarge {
        /// The cap, in bytes.
        cap: usize,
    },
    /// The connection broke, or sent something that is no body.
    #[error("the body broke off")]
    Broken(#[source] axum::Error),
}

impl FrameBody {
    /// A body of which [`FrameBody::read`] takes at most `cap` bytes.
    pub fn new(body: Body, cap: usize) -> FrameBody {
        FrameBody { inner: body, cap }
    }

    /// The same body with another cap; a later stage knows the tenant's own.
    pub fn with_cap(self, cap: usize) -> FrameBody {
        FrameBody { cap, ..self }
    }

    /// The body without its cap.
    pub fn into_inner(self) -> Body {
        self.inner
    }

    /// Reads the whole body. A body of one chunk is not copied unless it is small; a declared size
    /// above the cap is refused before anything is read.
    ///
    /// # Errors
    /// When the body is larger than the cap or breaks off.
    pub async fn read(self) -> Result<Bytes, BodyError> {
        self.read_noting(&AtomicUsize::new(0)).await
    }

    /// The same; meanwhile `received` says how much has come.
    ///
    /// # Errors
    /// When the body is larger than the cap or breaks off.
    pub async fn read_noting(mut self, received: &AtomicUsize) -> Result<Bytes, BodyError> {
        let hint = self.inner.size_hint();
        let cap = self.cap;
        if hint.lower() > cap as u64 {
            return Err(BodyError::TooLarge { cap });
        }
        let declared = hint
            .exact()
            .and_then(|size| usize::try_from(size).ok())
            .unwrap_or(0);
        let mut gathered = Gathered::new(declared);
        while let Some(chunk) = self.chunk().await {
            let chunk = chunk.map_err(BodyError::Broken)?;
            if gathered.len() + chunk.len() > cap {
                return Err(BodyError::TooLarge { cap });
            }
            gathered.push(chunk);
            received.store(gathered.len(), Ordering::Relaxed);
        }
        Ok(gathered.finish())
    }

    /// Reads at most `max` bytes from the start, fewer when the body ends or breaks off before.
    pub async fn read_prefix(mut self, max: usize) -> Bytes {
        let mut gathered = Gathered::new(0);
        while gathered.len() < max {
            let Some(Ok(mut chunk)) = self.chunk().await else {
                break;
            };
            chunk.truncate(max - gathered.len());
            gathered.push(chunk);
        }
        gathered.finish()
    }

    /// The next chunk of data; trailers are passed over.
    async fn chunk(&mut self) -> Option<Result<Bytes, axum::Error>> {
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut self.inner).poll_frame(cx)).await?;
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => return Some(Ok(data)),
                Ok(Err(_trailers)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl HttpBody for FrameBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Chunks so far: the first as it came, copied together only when there is a second.
struct Gathered {
    first: Bytes,
    joined: BytesMut,
    declared: usize,
}

impl Gathered {
    fn new(declared: usize) -> Gathered {
        Gathered {
            first: Bytes::new(),
            joined: BytesMut::new(),
            declared,
        }
    }

    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn push(&mut self, chunk: Bytes) {
        if self.len() == 0 {
            self.first = chunk;
            return;
        }
        if self.joined.is_empty() {
            self.joined
                .reserve(self.declared.max(self.first.len() + chunk.len()));
            self.joined
                .extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&chunk);
    }

    fn finish(self) -> Bytes {
        if self.joined.is_empty() && self.first.len() <= SMALL {
            Bytes::copy_from_slice(&self.first)
        } else if self.joined.is_empty() {
            self.first
        } else {
            self.joined.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BodyError, FrameBody};
    use axum::body::Body;
    use bytes::Bytes;
    use http_body::{Body as HttpBody, Frame};
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    /// Yields what it was given, chunk by chunk; `Err` breaks it off.
    struct Script(VecDeque<Result<&'static str, std::io::Error>>);

    impl HttpBody for Script {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            let next = self.0.pop_front();
            Poll::Ready(next.map(|chunk| chunk.map(|text| Frame::data(Bytes::from(text)))))
        }
    }

    fn body(chunks: &[&'static str], cap: usize) -> FrameBody {
        FrameBody::new(
            Body::new(Script(chunks.iter().map(|chunk| Ok(*chunk)).collect())),
            cap,
        )
    }

    #[tokio::test]
    async fn a_body_of_one_chunk_is_not_copied_unless_it_is_small() {
        for (size, copied) in [(10, true), (super::SMALL, true), (super::SMALL + 1, false)] {
            let chunk = Bytes::from(vec![b' '; size]);
            let read = FrameBody::new(Body::from(chunk.clone()), 4096)
                .read()
                .await
                .expect("a body");
            assert_eq!(read, chunk);
            assert_eq!(read.as_ptr() != chunk.as_ptr(), copied, "{size}");
        }
    }

    #[tokio::test]
    async fn chunks_are_joined_up_to_the_cap() {
        assert_eq!(
            body(&["ab", "", "cd", "e"], 5)
                .read()
                .await
                .expect("a body"),
            "abcde"
        );
        assert_eq!(body(&[], 5).read().await.expect("a body"), "");
        let error = body(&["ab", "cd", "ef"], 5)
            .read()
            .await
            .expect_err("too large");
        assert!(matches!(error, BodyError::TooLarge { cap: 5 }));
    }

    #[tokio::test]
    async fn t14_a_declared_size_above_the_cap_is_refused_unread() {
        let declared = FrameBody::new(Body::from("123456"), 100).with_cap(5);
        assert!(matches!(
            declared.read().await,
            Err(BodyError::TooLarge { cap: 5 })
        ));
    }

    #[tokio::test]
    async fn a_broken_body_is_an_error_but_its_prefix_is_not() {
        let chunks = || VecDeque::from([Ok("abc"), Err(std::io::Error::other("gone"))]);
        let whole = FrameBody::new(Body::new(Script(chunks())), 100)
            .read()
            .await;
        assert!(matches!(whole, Err(BodyError::Broken(_))));
        let prefix = FrameBody::new(Body::new(Script(chunks())), 100)
            .read_prefix(64)
            .await;
        assert_eq!(prefix, "abc");
    }

    #[tokio::test]
    async fn a_prefix_stops_where_it_should() {
        assert_eq!(body(&["ab", "cd", "ef"], 100).read_prefix(3).await, "abc");
        assert_eq!(body(&["ab"], 100).read_prefix(3).await, "ab");
    }
}
