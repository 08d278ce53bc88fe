//! Which version of HTTP a connection speaks: its first bytes say.
//!
//! The library can find that out by itself. It then hands on what it has read for that before
//! anything else, and with a read of so few bytes the buffer of every connection grows to twice what it
//! needs: here they come with what follows them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Version;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// What HTTP/2 begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream of which the first bytes have been looked at.
#[derive(Debug)]
pub(crate) struct Begun<S> {
    inner: S,
    first: [u8; PREFACE.len()],
    read: usize,
    taken: usize,
}

impl<S: AsyncRead + Unpin> Begun<S> {
    /// Reads until it is clear what it is; whatever is not HTTP/2 is for HTTP/1.1 to refuse.
    pub(crate) async fn read(mut inner: S) -> io::Result<(Version, Self)> {
        let (mut first, mut read) = ([0; PREFACE.len()], 0);
        let version = loop {
            let more = inner.read(&mut first[read..]).await?;
            read += more;
            if more == 0 || first[..read] != PREFACE[..read] {
                break Version::HTTP_11;
            }
            if read == PREFACE.len() {
                break Version::HTTP_2;
            }
        };
        let begun = Self {
            inner,
            first,
            read,
            taken: 0,
        };
        Ok((version, begun))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = &this.first[this.taken..this.read];
        if left.is_empty() {
            return Pin::new(&mut this.inner).poll_read(cx, buf);
        }
        let now = left.len().min(buf.remaining());
        buf.put_slice(&left[..now]);
        this.taken += now;
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut this.inner).poll_read(cx, buf) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const REQUEST: &[u8] = b"PRINT /a/path/longer/than/a/preface HTTP/1.1\r\n\r\n";

    /// What is sent in these pieces, as the library reads it.
    async fn begun(pieces: &[&[u8]]) -> (Version, Vec<Vec<u8>>) {
        let (mut peer, stream) = tokio::io::duplex(1024);
        let reading = tokio::spawn(async move {
            let (version, mut begun) = Begun::read(stream).await.unwrap();
            let mut reads = vec![];
            loop {
                let mut buffer = [0; 512];
                let count = begun.read(&mut buffer).await.unwrap();
                if count == 0 {
                    return (version, reads);
                }
                reads.push(buffer[..count].to_vec());
            }
        });
        for piece in pieces {
            peer.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        drop(peer);
        reading.await.unwrap()
    }

    #[tokio::test]
    async fn what_comes_together_is_read_together() {
        let (version, reads) = begun(&[REQUEST]).await;
        assert_eq!(version, Version::HTTP_11);
        assert_eq!(reads, [REQUEST]);
    }

    #[tokio::test]
    async fn nothing_is_lost_however_it_comes() {
        let settings: &[u8] = &[PREFACE.as_slice(), b"\0\0\0\x04\0\0\0\0\0"].concat();
        for (whole, expected) in [
            (REQUEST, Version::HTTP_11),
            (settings, Version::HTTP_2),
            (b"PRI * HT", Version::HTTP_11),
            (b"", Version::HTTP_11),
        ] {
            for size in 1..=whole.len().max(1) {
                let pieces: Vec<&[u8]> = whole.chunks(size).collect();
                let (version, reads) = begun(&pieces).await;
                assert_eq!(
                    (version, reads.concat()),
                    (expected, whole.to_vec()),
                    "{size}"
                );
            }
        }
    }
}
