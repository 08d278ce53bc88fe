//! The serving side: one task per connection, request after request.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{Answer, Log, Recorded, answer::Piece};
use crate::wire::Head;

/// Whether the connection can take another request.
#[derive(PartialEq, Eq)]
enum After {
    Next,
    Done,
}

/// Accepts connections until aborted; they end with it.
pub(super) async fn accept(listener: TcpListener, log: Arc<Log>) {
    let mut connections = JoinSet::new();
    let mut number = 0;
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, number, Arc::clone(&log)));
        number += 1;
    }
}

async fn serve(stream: TcpStream, connection: usize, log: Arc<Log>) {
    let mut stream = BufReader::new(stream);
    loop {
        // A client that breaks off within a request leaves nothing to record.
        let Ok(Some(request)) = read(&mut stream, connection).await else {
            return;
        };
        let answer = (log.script)(&request);
        log.requests.lock().expect("no holder panics").push(request);
        log.count.send_modify(|count| *count += 1);
        match write(&mut stream, answer).await {
            Ok(After::Next) => {}
            Ok(After::Done) => return,
            Err(_) => {
                log.abandoned.send_modify(|abandoned| *abandoned += 1);
                return;
            }
        }
    }
}

async fn read(
    stream: &mut BufReader<TcpStream>,
    connection: usize,
) -> anyhow::Result<Option<Recorded>> {
    let Some(head) = Head::read(stream).await? else {
        return Ok(None);
    };
    let mut words = head.start.split(' ');
    let method = words.next().unwrap_or_default().to_owned();
    let target = words.next().unwrap_or_default().to_owned();
    if head
        .field("expect")
        .is_some_and(|expected| expected.eq_ignore_ascii_case("100-continue"))
    {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let body = head.framing(true)?.rest(stream).await?;
    Ok(Some(Recorded {
        method,
        target,
        head,
        body,
        connection,
    }))
}

/// Writes an answer. An error means that the client closed before its end.
async fn write(stream: &mut BufReader<TcpStream>, answer: Answer) -> anyhow::Result<After> {
    let mut answer = answer;
    while let Answer::Later(later) = answer {
        answer = tokio::select! {
            answer = later => answer,
            gone = gone(stream) => return gone,
        };
    }
    match answer {
        Answer::Full {
            status,
            fields,
            body,
        } => {
            let mut bytes = head(status, &fields);
            bytes.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
            stream
                .write_all(&[bytes.as_bytes(), &body].concat())
                .await?;
            Ok(After::Next)
        }
        Answer::Stream {
            status,
            fields,
            pieces,
        } => {
            let head = format!(
                "{}transfer-encoding: chunked\r\n\r\n",
                head(status, &fields)
            );
            stream.write_all(head.as_bytes()).await?;
            write_pieces(stream, pieces).await
        }
        Answer::Endless(piece) => {
            let head = format!("{}transfer-encoding: chunked\r\n\r\n", head(200, &[]));
            stream.write_all(head.as_bytes()).await?;
            loop {
                stream.write_all(&chunk(&piece)).await?;
            }
        }
        Answer::Bytes(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await?;
            Ok(After::Done)
        }
        Answer::Hang => gone(stream).await,
        Answer::Close | Answer::Later(_) => Ok(After::Done),
    }
}

async fn write_pieces(
    stream: &mut BufReader<TcpStream>,
    mut pieces: tokio::sync::mpsc::Receiver<Piece>,
) -> anyhow::Result<After> {
    loop {
        let piece = tokio::select! {
            piece = pieces.recv() => piece,
            gone = gone(stream) => return gone,
        };
        match piece {
            Some(Piece::Bytes(bytes)) => stream.write_all(&chunk(&bytes)).await?,
            Some(Piece::Break) => return Ok(After::Done),
            None => {
                stream.write_all(b"0\r\n\r\n").await?;
                return Ok(After::Next);
            }
        }
    }
}

/// Ends when the client closes, always with an error. A client that sends
/// something before it has its answer is one that pipelines: not served.
async fn gone(stream: &mut BufReader<TcpStream>) -> anyhow::Result<After> {
    stream.read_u8().await.context("the client has gone")?;
    anyhow::bail!("the client sends while it is answered")
}

fn head(status: u16, fields: &[(String, String)]) -> String {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head
}

fn chunk(bytes: &Bytes) -> Vec<u8> {
    if bytes.is_empty() {
        // An empty chunk would end the body.
        return Vec::new();
    }
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}
