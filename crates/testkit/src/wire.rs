//! HTTP/1.1 messages as bytes: heads in wire order, bodies piece by piece.
//!
//! Small and literal on purpose. It reads what correct peers send and keeps
//! everything a test may want to see; it is no defence against hostile input.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The longest head a test peer reads.
const MAX_HEAD: usize = 1 << 20;

/// The first line and the header fields of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The first line, without its line end.
    pub start: String,
    /// Names as sent and values without surrounding blanks, in wire order.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// The first value of a field, its name in any case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a field, in wire order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let same = move |(field, _): &&(String, String)| field.eq_ignore_ascii_case(name);
        self.fields
            .iter()
            .filter(same)
            .map(|(_, value)| value.as_str())
    }

    /// Reads a head; none when the peer closed before its first byte.
    ///
    /// # Errors
    ///
    /// The connection broke, or what came is no HTTP.
    pub async fn read(reader: &mut (impl AsyncBufRead + Unpin)) -> anyhow::Result<Option<Self>> {
        let Some(start) = line(reader).await? else {
            return Ok(None);
        };
        let mut fields = Vec::new();
        let mut size = start.len();
        loop {
            let line = line(reader).await?.context("the head has no end")?;
            if line.is_empty() {
                return Ok(Some(Self { start, fields }));
            }
            size += line.len();
            ensure!(size <= MAX_HEAD, "the head is too long for a test");
            let (name, value) = line
                .split_once(':')
                .with_context(|| format!("no header field: {line}"))?;
            fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
        }
    }

    /// How the body of this message ends. `bodiless`: when nothing says, there is none.
    ///
    /// # Errors
    ///
    /// The length is no number.
    pub fn framing(&self, bodiless: bool) -> anyhow::Result<Framing> {
        if self
            .field("transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
        {
            return Ok(Framing::Chunked);
        }
        match self.field("content-length") {
            Some(length) => Ok(Framing::Length(
                length.parse().context("no content length")?,
            )),
            None if bodiless => Ok(Framing::Length(0)),
            None => Ok(Framing::UntilClose),
        }
    }
}

/// One line without its end; none at the end of the stream.
async fn line(reader: &mut (impl AsyncBufRead + Unpin)) -> anyhow::Result<Option<String>> {
    let mut line = String::new();
    if reader
        .read_line(&mut line)
        .await
        .context("the connection broke")?
        == 0
    {
        return Ok(None);
    }
    ensure!(
        line.ends_with('\n'),
        "the peer closed within a line: {line}"
    );
    Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
}

/// How a body ends, and how much of it is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After so many more bytes.
    Length(u64),
    /// With an empty chunk.
    Chunked,
    /// With the connection.
    UntilClose,
    /// It has ended.
    Ended,
}

impl Framing {
    /// The next piece of the body, as it arrives; none at its end.
    ///
    /// # Errors
    ///
    /// The connection broke before the body's end.
    pub async fn piece(
        &mut self,
        reader: &mut (impl AsyncBufRead + Unpin),
    ) -> anyhow::Result<Option<Bytes>> {
        match *self {
            Self::Length(0) | Self::Ended => Ok(None),
            Self::Length(left) => {
                let available = reader.fill_buf().await.context("the connection broke")?;
                ensure!(
                    !available.is_empty(),
                    "the peer closed {left} bytes before the end of its body"
                );
                let take = available
                    .len()
                    .min(usize::try_from(left).unwrap_or(usize::MAX));
                let piece =
                    Bytes::copy_from_slice(available.get(..take).expect("not more than there is"));
                reader.consume(take);
                *self = Self::Length(left - take as u64);
                Ok(Some(piece))
            }
            Self::Chunked => self.chunk(reader).await,
            Self::UntilClose => {
                let piece = Bytes::copy_from_slice(
                    reader.fill_buf().await.context("the connection broke")?,
                );
                reader.consume(piece.len());
                Ok((!piece.is_empty()).then_some(piece))
            }
        }
    }

    async fn chunk(
        &mut self,
        reader: &mut (impl AsyncBufRead + Unpin),
    ) -> anyhow::Result<Option<Bytes>> {
        let size = line(reader)
            .await?
            .context("the peer closed between two chunks")?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let size =
            usize::from_str_radix(size, 16).with_context(|| format!("no chunk size: {size}"))?;
        let mut chunk = vec![0; size];
        reader
            .read_exact(&mut chunk)
            .await
            .context("the peer closed within a chunk")?;
        if size > 0 {
            ensure!(
                line(reader).await?.as_deref() == Some(""),
                "a chunk has no end"
            );
            return Ok(Some(chunk.into()));
        }
        while !line(reader)
            .await?
            .context("the trailers have no end")?
            .is_empty()
        {}
        *self = Self::Ended;
        Ok(None)
    }

    /// The whole rest of the body.
    ///
    /// # Errors
    ///
    /// The connection broke before the body's end.
    pub async fn rest(mut self, reader: &mut (impl AsyncBufRead + Unpin)) -> anyhow::Result<Bytes> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece(reader).await? {
            body.extend_from_slice(&piece);
        }
        Ok(body.into())
    }
}

/// The status code of a response's first line.
///
/// # Errors
///
/// It is no status line.
pub fn status(start: &str) -> anyhow::Result<u16> {
    match start.split(' ').nth(1).map(str::parse) {
        Some(Ok(status)) if start.starts_with("HTTP/1.") => Ok(status),
        Some(_) | None => bail!("no status line: {start}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Framing, Head, status};

    async fn body(framing: Framing, mut bytes: &[u8]) -> anyhow::Result<bytes::Bytes> {
        framing.rest(&mut bytes).await
    }

    #[tokio::test]
    async fn a_head_keeps_order_and_case() {
        let mut bytes: &[u8] = b"POST /mcp HTTP/1.1\r\nX-B: 1\r\nx-a:  2 \r\nX-b: 3\r\n\r\nrest";
        let head = Head::read(&mut bytes).await.unwrap().unwrap();
        assert_eq!(head.start, "POST /mcp HTTP/1.1");
        let names: Vec<_> = head.fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["X-B", "x-a", "X-b"]);
        assert_eq!(head.field("X-A"), Some("2"));
        assert_eq!(head.all("x-b").collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(bytes, b"rest");
    }

    #[tokio::test]
    async fn a_closed_connection_has_no_head_and_a_cut_one_is_an_error() {
        assert!(Head::read(&mut b"".as_slice()).await.unwrap().is_none());
        assert!(
            Head::read(&mut b"GET / HTTP/1.1\r\nHost".as_slice())
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn chunks_are_joined_and_a_missing_last_one_is_an_error() {
        let joined = body(Framing::Chunked, b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(joined, "abcde");
        assert!(body(Framing::Chunked, b"3\r\nabc\r\n").await.is_err());
    }

    #[tokio::test]
    async fn a_length_is_kept_to() {
        assert_eq!(body(Framing::Length(3), b"abcdef").await.unwrap(), "abc");
        assert!(body(Framing::Length(9), b"abcdef").await.is_err());
        assert_eq!(
            body(Framing::UntilClose, b"abcdef").await.unwrap(),
            "abcdef"
        );
    }

    #[test]
    fn only_status_lines_have_a_status() {
        assert_eq!(status("HTTP/1.1 404 Not Found").unwrap(), 404);
        assert!(status("404").is_err());
    }
}
