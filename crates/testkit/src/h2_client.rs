//! A client of HTTP/2 frames: sends what a test writes, however wrong.
//!
//! No HTTP library is in between, as none would send what these tests are
//! about. It asks the peer for header blocks without a dynamic table, so that of a
//! block only the status need be read.

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::PATIENCE;

/// Types of frames.
pub mod kind {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const NONE: u8 = 0;
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
}

/// Codes of errors.
pub mod code {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const PROTOCOL_ERROR: u32 = 1;
    pub const FLOW_CONTROL_ERROR: u32 = 3;
    pub const FRAME_SIZE_ERROR: u32 = 6;
    pub const REFUSED_STREAM: u32 = 7;
    pub const CANCEL: u32 = 8;
    pub const COMPRESSION_ERROR: u32 = 9;
    pub const ENHANCE_YOUR_CALM: u32 = 11;
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Our settings: no dynamic table for header blocks.
const NO_TABLE: [u8; 6] = [0, 1, 0, 0, 0, 0];

/// A frame as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct H2Frame {
    /// Its type, see [`kind`].
    pub kind: u8,
    /// Its flags, see [`flag`].
    pub flags: u8,
    /// Its stream.
    pub stream: u32,
    /// What it carries.
    pub payload: Bytes,
}

impl H2Frame {
    /// Whether it has a flag.
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The code of a reset or of a goodbye; none for other frames.
    #[must_use]
    pub fn error(&self) -> Option<u32> {
        let at = match self.kind {
            kind::RST_STREAM => 0,
            kind::GOAWAY => 4,
            _ => return None,
        };
        let bytes = self.payload.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    /// The settings of a SETTINGS frame: numbers and values.
    #[must_use]
    pub fn settings(&self) -> Vec<(u16, u32)> {
        let setting = |bytes: &[u8]| {
            let (number, value) = bytes.split_first_chunk::<2>()?;
            let value = value.first_chunk::<4>()?;
            Some((u16::from_be_bytes(*number), u32::from_be_bytes(*value)))
        };
        self.payload.chunks(6).filter_map(setting).collect()
    }

    /// The status at the start of a header block; none in other frames.
    ///
    /// # Panics
    ///
    /// It is written in a way that no encoder without a table has reason to use.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        if self.kind != kind::HEADERS {
            return None;
        }
        let mut block = &self.payload[..];
        while block.first().is_some_and(|byte| byte & 0xe0 == 0x20) {
            block = &block[1..]; // the size of the table
        }
        const KNOWN: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
        match block {
            [byte @ 0x88..=0x8e, ..] => Some(KNOWN[usize::from(byte - 0x88)]),
            [name, length, value @ ..] if matches!(name & 0x3f, 8..=14) => {
                let (huffman, length) = (length & 0x80 != 0, usize::from(length & 0x7f));
                Some(digits(&value[..length], huffman))
            }
            _ => panic!("no status in {block:?}"),
        }
    }
}

/// A number of three digits, plain or in Huffman's code.
fn digits(bytes: &[u8], huffman: bool) -> u16 {
    if !huffman {
        let text = std::str::from_utf8(bytes).expect("digits");
        return text.parse().expect("a status");
    }
    let bits = |from: usize, count: usize| {
        (from..from + count).fold(0u8, |value, at| {
            value << 1 | bytes.get(at / 8).map_or(1, |byte| byte >> (7 - at % 8) & 1)
        })
    };
    let (mut at, mut number) = (0, 0);
    for _ in 0..3 {
        let digit = match bits(at, 5) {
            short @ 0..=2 => {
                at += 5;
                short
            }
            _ => {
                at += 6;
                bits(at - 6, 6) - 0x19 + 3
            }
        };
        number = number * 10 + u16::from(digit);
    }
    number
}

/// A header block, every field literally and without a table.
#[must_use]
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            length(&mut bytes, text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// The length of a string: seven bits, and more bytes when it is longer.
fn length(bytes: &mut Vec<u8>, length: usize) {
    if length < 127 {
        bytes.push(u8::try_from(length).expect("seven bits"));
        return;
    }
    bytes.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        bytes.push(u8::try_from(rest % 128).expect("seven bits") | 0x80);
        rest /= 128;
    }
    bytes.push(u8::try_from(rest).expect("seven bits"));
}

/// A frame's bytes.
///
/// # Panics
///
/// The payload is longer than any frame may be.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a payload that a length can tell");
    let [0, length @ ..] = length.to_be_bytes() else {
        panic!("a payload that a length can tell");
    };
    let mut bytes = length.to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// One connection.
#[derive(Debug)]
pub struct H2Client {
    stream: BufReader<TcpStream>,
    /// The settings that the peer opened with.
    pub settings: Vec<(u16, u32)>,
}

impl H2Client {
    /// Connects, exchanges settings and acknowledges the peer's.
    ///
    /// # Errors
    ///
    /// Nobody listens, or the peer speaks no HTTP/2.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true).context("no TCP")?;
        let mut client = Self {
            stream: BufReader::new(stream),
            settings: Vec::new(),
        };
        client.send(PREFACE).await?;
        let own = frame(kind::SETTINGS, flag::NONE, 0, &NO_TABLE);
        client.send(&own).await?;
        let settings = client.next().await?.context("the peer closed")?;
        ensure!(settings.kind == kind::SETTINGS, "no settings: {settings:?}");
        client.settings = settings.settings();
        let ack = frame(kind::SETTINGS, flag::ACK, 0, b"");
        client.send(&ack).await?;
        Ok(client)
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        timeout(PATIENCE, self.stream.write_all(bytes))
            .await
            .context("waited too long for sending")?
            .context("the connection broke")
    }

    /// The next frame; none when the peer closed.
    ///
    /// # Errors
    ///
    /// None came in time, or half a frame.
    pub async fn next(&mut self) -> anyhow::Result<Option<H2Frame>> {
        match timeout(PATIENCE, self.read()).await {
            Ok(frame) => frame,
            Err(_) => bail!("waited too long for a frame"),
        }
    }

    async fn read(&mut self) -> anyhow::Result<Option<H2Frame>> {
        let mut head = [0; 9];
        // a reset closes a connection, too
        if self.stream.read_exact(&mut head).await.is_err() {
            return Ok(None);
        }
        let [a, b, c, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        let length = usize::try_from(length).context("24 bits")?;
        let mut payload = vec![0; length];
        if self.stream.read_exact(&mut payload).await.is_err() {
            return Ok(None);
        }
        Ok(Some(H2Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
            payload: payload.into(),
        }))
    }

    /// The next frame of a kind, whatever comes before it; none when the peer closed first.
    ///
    /// # Errors
    ///
    /// It did not come in time.
    pub async fn next_of(&mut self, kind: u8) -> anyhow::Result<Option<H2Frame>> {
        loop {
            match self.next().await? {
                Some(frame) if frame.kind == kind => return Ok(Some(frame)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// The next frame that answers a stream, its head or its reset, whatever comes before it; none
    /// when the peer closed or said goodbye first.
    ///
    /// # Errors
    ///
    /// It did not come in time.
    pub async fn answer(&mut self, stream: u32) -> anyhow::Result<Option<H2Frame>> {
        while let Some(frame) = self.next().await? {
            match frame.kind {
                kind::HEADERS | kind::RST_STREAM if frame.stream == stream => {
                    return Ok(Some(frame));
                }
                kind::GOAWAY => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Reads up to the end of the connection; the code of the goodbye, if there was one.
    ///
    /// # Errors
    ///
    /// The peer did not close in time.
    pub async fn goodbye(&mut self) -> anyhow::Result<Option<u32>> {
        let mut code = None;
        while let Some(frame) = self.next().await? {
            if frame.kind == kind::GOAWAY {
                code = frame.error();
            }
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::{H2Frame, block, flag, frame, kind};

    fn headers(payload: &[u8]) -> Option<u16> {
        let frame = H2Frame {
            kind: kind::HEADERS,
            flags: flag::END_HEADERS,
            stream: 1,
            payload: payload.to_vec().into(),
        };
        frame.status()
    }

    #[test]
    fn statuses_are_read_in_every_form() {
        assert_eq!(headers(&[0x88]), Some(200));
        assert_eq!(headers(&[0x20, 0x8d, 0x76]), Some(404));
        assert_eq!(headers(b"\x08\x03405"), Some(405));
        assert_eq!(headers(b"\x48\x03431"), Some(431));
        // RFC 7541, C.6.1: 302 in Huffman's code
        assert_eq!(headers(&[0x48, 0x82, 0x64, 0x02]), Some(302));
        assert_eq!(headers(&[0x08, 0x83, 0x69, 0x90, 0xff]), Some(431));
    }

    #[test]
    fn frames_and_blocks_are_those_of_the_specification() {
        assert_eq!(
            frame(kind::PING, flag::ACK, 0, b"12345678"),
            b"\0\0\x08\x06\x01\0\0\0\x0012345678"
        );
        let long = "x".repeat(300);
        let bytes = block(&[("a", &long)]);
        assert_eq!(&bytes[..6], [0, 1, b'a', 127, 0xad, 1]);
        assert_eq!(bytes.len(), 306);
    }
}
