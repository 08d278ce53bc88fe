//! Lines of a stream, with a cap on their length.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is read at once at least.
const CHUNK: usize = 16 * 1024;

/// Reads lines. What follows the last line end is no line.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    from: R,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
    max: usize,
}

/// Why there is no further line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The stream has ended or broken.
    Closed,
    /// A line is longer than the cap.
    TooLong,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(from: R, max: usize) -> Self {
        Self {
            from,
            buffer: BytesMut::new(),
            searched: 0,
            max,
        }
    }

    /// Forgets what was read of a line that is too long; its rest comes as a line of its own.
    pub(crate) fn skip(&mut self) {
        self.buffer.clear();
        self.searched = 0;
    }

    /// The next line without its end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Bytes, End> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(found) = unsearched.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + found).freeze();
                self.buffer.advance(1);
                self.searched = 0;
                return Ok(line);
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > self.max {
                return Err(End::TooLong);
            }
            self.buffer.reserve(CHUNK);
            match self.from.read_buf(&mut self.buffer).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(End::Closed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn std_01_lines_are_cut_at_newlines_and_capped() {
        let text: &[u8] = b"one\r\n\ntwo\nrest";
        let mut lines = Lines::new(text, 100);
        for expected in ["one\r", "", "two"] {
            assert_eq!(lines.next().await.unwrap(), expected);
        }
        assert_eq!(lines.next().await, Err(End::Closed));
        let long = [b'x'; 64];
        assert_eq!(Lines::new(&long[..], 10).next().await, Err(End::TooLong));
    }
}
