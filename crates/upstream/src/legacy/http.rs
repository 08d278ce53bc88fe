//! One turn of a call over HTTP: the POST, and its answer up to the response.

use std::sync::Arc;

use vestibule_exchange::{Final, Outbound};
use vestibule_frame::Draft;
use vestibule_terms::reject::code;

use crate::calls::Next;
use crate::clock::CallClock;
use crate::compose;
use crate::fault::Fault;
use crate::legacy::Turn;
use crate::legacy::in_call::InCall;
use crate::legacy::live::{HttpLine, Live};
use crate::legacy::record::Mark;
use crate::legacy::resume::Cursor;
use crate::link::Link;
use crate::running::Sink;
use crate::wire::{Answer, Item, Refusal};

/// What the wait for a call came to.
enum Step {
    Channel(Box<Next>),
    Stream(Result<Option<Item>, Fault>),
    /// The upstream is silent because it waits for the client.
    Patience,
}

/// Makes the call once.
pub(crate) async fn turn(
    link: &Arc<Link>,
    live: &Live,
    line: &Arc<HttpLine>,
    outbound: &Outbound,
    clock: &mut CallClock,
    sink: &Sink,
) -> Result<Turn, Fault> {
    let id = link.ids().call();
    let payload = compose::legacy(outbound, &id).chunks();
    let mut call = InCall::open(live, outbound, id, sink, link.background());
    let headers = line.post_headers();
    let reply = clock.bound(line.wire.post(&headers, &payload)).await?;
    if matches!(reply, Err(Fault::NotSent(_) | Fault::Redirected(_))) {
        call.not_running();
    }
    link.observe()
        .reached(!reply.as_ref().is_err_and(Fault::is_down));
    let answer = match reply?.into_answer(line.wire.max_response())? {
        Ok(answer) => answer,
        Err(refusal) => {
            call.not_running();
            return refused(link, line, refusal);
        }
    };
    line.quirks.version_settled();
    clock.touch();
    let reading = (Cursor::default(), answer);
    let end = read(line, &mut call, reading, clock, sink).await?;
    Ok(settle(end))
}

/// The rest of a call that another process has made.
pub(crate) async fn rest(
    link: &Arc<Link>,
    live: &Live,
    line: &Arc<HttpLine>,
    (outbound, mark): (&Outbound, Mark),
    clock: &mut CallClock,
    sink: &Sink,
) -> Result<Final, Fault> {
    let mut call = InCall::open(live, outbound, mark.call.clone(), sink, link.background());
    call.asked_elsewhere(mark.waits);
    let mut cursor = Cursor::at(mark);
    let answer = Box::pin(cursor.resume(line, clock, None)).await?;
    read(line, &mut call, (cursor, answer), clock, sink).await
}

/// A -32022 among the answers says that the upstream has left this era (2.3).
fn settle(end: Final) -> Turn {
    let is_version = matches!(&end, Final::Message(draft)
        if draft.frame().error_parts().is_some_and(|e| e.code == Some(code::UNSUPPORTED_VERSION)));
    if is_version {
        Turn::OtherEra
    } else {
        Turn::End(Box::new(end))
    }
}

/// What a status that is no success means in a session.
fn refused(link: &Link, line: &HttpLine, refusal: Refusal) -> Result<Turn, Fault> {
    let status = refusal.status.as_u16();
    if line.session_id.is_some() && (status == 404 || names_the_session(&refusal)) {
        return Ok(Turn::SessionGone);
    }
    let error = refusal
        .frame
        .as_ref()
        .filter(|frame| frame.error().is_some());
    // a 400 about the header, or one that does not say what it is about (VER-04)
    let code = error
        .and_then(|frame| frame.error_parts())
        .and_then(|parts| parts.code);
    let may_be_header = code.is_none_or(|code| matches!(code, -32099..=-32000 | -32600));
    if status == 400 && may_be_header && line.quirks.version_doubted() {
        return Ok(Turn::Again);
    }
    match error {
        Some(frame) if matches!(status, 400 | 402 | 404..=428) => {
            Ok(settle(Final::Message(Draft::new(frame.clone()))))
        }
        Some(_) | None => {
            // nothing that an upstream of this era answers: it is asked anew before the next call
            if matches!(status, 404 | 405 | 406 | 415) {
                link.forget_era();
            }
            Err(refusal.fault())
        }
    }
}

/// Widespread servers answer an unknown session with 400 and words instead of 404. A 400 proves
/// as well that nothing ran.
fn names_the_session(refusal: &Refusal) -> bool {
    let error = refusal.frame.as_ref().and_then(|frame| frame.error_parts());
    refusal.status.as_u16() == 400
        && error.is_some_and(|error| {
            error.code == Some(-32000) && error.message.to_ascii_lowercase().contains("session")
        })
}

/// Reads the answer, through reconnects, up to the response.
async fn read(
    line: &Arc<HttpLine>,
    call: &mut InCall<'_>,
    (mut cursor, mut answer): (Cursor, Answer),
    clock: &mut CallClock,
    sink: &Sink,
) -> Result<Final, Fault> {
    loop {
        let item = match step(call, &mut answer, clock).await? {
            Step::Patience => continue,
            Step::Channel(next) => {
                clock.touch();
                match call.take(*next).await? {
                    Some(end) => return Ok(end),
                    None => continue,
                }
            }
            Step::Stream(item) => item,
        };
        match item {
            Ok(Some(item)) => {
                clock.touch();
                if !cursor.advance(&item) {
                    continue; // a repetition after a resume
                }
                call.heard(&item);
                let mark = cursor.mark(call.id(), &item, call.is_waiting_for_client());
                if let Some(end) = call.hear(item.frames, mark).await? {
                    answer.finish();
                    return Ok(end);
                }
            }
            Ok(None) if !answer.is_stream() => return Err(Fault::Protocol("no_response")),
            Ok(None) => answer = Box::pin(cursor.resume(line, clock, Some(sink))).await?,
            Err(Fault::Broken) if answer.is_stream() => {
                answer = Box::pin(cursor.resume(line, clock, None)).await?;
            }
            Err(fault) => return Err(fault),
        }
    }
}

async fn step(
    call: &mut InCall<'_>,
    answer: &mut Answer,
    clock: &mut CallClock,
) -> Result<Step, Fault> {
    let waited = clock
        .bound(async {
            tokio::select! {
                next = call.next() => Step::Channel(Box::new(next)),
                item = answer.next() => Step::Stream(item),
            }
        })
        .await;
    match waited {
        Err(Fault::Timeout) if call.is_waiting_for_client() && !clock.is_over() => {
            clock.touch();
            Ok(Step::Patience)
        }
        waited => waited,
    }
}
