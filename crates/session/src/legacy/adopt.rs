//! Streams that lost the task, or the whole process, that wrote them (EL-15). Where the upstream
//! remembers the call, this process goes on with it; else its request gets the one answer that is
//! left. A request is never sent anew, unless it has no effect.

use std::sync::Arc;

use bytes::Bytes;
use vestibule_frame::Id;
use vestibule_streamlog::{Orphan, StreamRef, Writer};

use super::access::attach;
use super::call;
use super::note::Note;
use super::notify::cancel;
use super::sink::outcome_unknown;
use crate::room::Shared;

/// Takes over a stream that has no writer. Whoever is first is the one; not a process that stops.
pub(crate) async fn adopt(shared: &Arc<Shared>, orphan: Orphan) {
    if shared.endings.stopping() {
        return;
    }
    let Orphan {
        stream,
        requests,
        note,
    } = orphan;
    let note = note.and_then(|note| Note::read(stream.session.tenant(), &note));
    if let (Some(note), [request]) = (note, requests.as_slice())
        && let Some(id) = Id::from_token(request.clone())
        && gone_on(shared, &stream, id, note).await
    {
        return;
    }
    if let [request] = requests.as_slice()
        && let Some(id) = Id::from_token(request.clone())
        && shared.unmet.has(&stream.session, &id)
    {
        let _ended = shared.rooms.log.finish(&stream, None).await; // CAN-03
        return;
    }
    end(shared, &stream, &requests).await;
}

/// Goes on with the call; false when nothing is left of it here.
async fn gone_on(shared: &Arc<Shared>, stream: &StreamRef, id: Id, note: Note) -> bool {
    let stored = match shared.rooms.sessions.get(&stream.session).await {
        Ok(Some(stored)) => stored,
        Ok(None) => return false,
        // it stays an orphan, and is named again
        Err(error) => {
            tracing::debug!(%error, "an orphaned stream has to wait for the store");
            return true;
        }
    };
    let plan = (shared.rooms.plans)(stream.session.tenant(), &stored.opening.server);
    let Some(plan) = plan else {
        return false;
    };
    let writer = match Writer::claim(&shared.rooms.log, stream).await {
        Ok(Some(writer)) => writer,
        Ok(None) => return true, // somebody else has it
        Err(error) => {
            tracing::debug!(%error, "an orphaned stream could not be claimed");
            return true;
        }
    };
    let live = attach(shared, stored, &note.user);
    let Some(call) = call::go_on(shared, &live, &plan, (id.clone(), note), writer) else {
        return false;
    };
    tracing::info!(tenant = %stream.session.tenant(), "going on with a call that another process began");
    tokio::spawn(call);
    if shared.unmet.has(&stream.session, &id) {
        // others wait to be taken over
        let shared = Arc::clone(shared);
        tokio::spawn(async move { cancel(&shared, &live, &id).await });
    }
    true
}

/// Writes the end of a stream whose outcome nobody knows.
async fn end(shared: &Shared, stream: &StreamRef, requests: &[Bytes]) {
    let log = &shared.rooms.log;
    let Some((last, before)) = requests.split_last() else {
        let _ended = log.finish(stream, None).await;
        return;
    };
    let before: Vec<Bytes> = before.iter().map(outcome_unknown).collect();
    if !before.is_empty()
        && let Err(error) = log.append(stream, before).await
    {
        tracing::debug!(%error, "an orphaned stream was ended by somebody else");
        return;
    }
    if let Err(error) = log.finish(stream, Some(outcome_unknown(last))).await {
        tracing::debug!(%error, "an orphaned stream was ended by somebody else");
    }
}
