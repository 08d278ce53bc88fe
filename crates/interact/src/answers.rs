//! Which questions are open, so that each is answered at most once, and the way answers take.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vestibule_exchange::{
    Backchannel, BoxFuture, Capabilities, Closing, Connector, Inlet, QuestionRef, RpcError,
    SessionKey, Sharing,
};
use vestibule_frame::{Draft, Id};
use vestibule_terms::reject::code;
use vestibule_terms::{TenantId, UpstreamId};

/// Most questions that are open at once, in all; the oldest gives way.
const OPEN_MAX: usize = 65_536;

type Key = (TenantId, UpstreamId, Sharing, Id);

fn key(question: &QuestionRef) -> Key {
    let QuestionRef {
        tenant,
        upstream,
        sharing,
        id,
        asked_as: _,
    } = question.clone();
    (tenant, upstream, sharing, id)
}

#[derive(Default)]
struct Table {
    open: HashMap<Key, u64>,
    oldest: BTreeMap<u64, Key>,
    next: u64,
}

/// The open questions of all calls.
#[derive(Default)]
pub(crate) struct Answers(Mutex<Table>);

impl Answers {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A question goes to its client. An id that an upstream uses again is a new question.
    pub(crate) fn ask(&self, question: &QuestionRef) {
        let mut table = self.table();
        let (key, number) = (key(question), table.next);
        table.next += 1;
        if let Some(earlier) = table.open.insert(key.clone(), number) {
            table.oldest.remove(&earlier);
        }
        table.oldest.insert(number, key);
        if table.open.len() > OPEN_MAX
            && let Some((_, key)) = table.oldest.pop_first()
        {
            table.open.remove(&key);
        }
    }

    /// Takes a question off the table: true for the first who does.
    pub(crate) fn take(&self, question: &QuestionRef) -> bool {
        let mut table = self.table();
        let number = table.open.remove(&key(question));
        if let Some(number) = number {
            table.oldest.remove(&number);
        }
        number.is_some()
    }

    fn forget(&self, session: &SessionKey) {
        let mut table = self.table();
        let theirs = |key: &Key| matches!(&key.2, Sharing::Session(of) if of == session);
        table.open.retain(|key, _| !theirs(key));
        table.oldest.retain(|_, key| !theirs(key));
    }
}

/// The way from a client to its upstreams.
pub(crate) struct Back {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) answers: Arc<Answers>,
}

impl Backchannel for Back {
    /// A second answer, and one to a question that is closed, go nowhere and are no error.
    fn answer(&self, to: QuestionRef, answer: Draft) -> BoxFuture<Result<(), RpcError>> {
        if !self.answers.take(&to) {
            return Box::pin(async { Ok(()) });
        }
        let (answers, carrying) = (
            Arc::clone(&self.answers),
            self.connector.answer(to.clone(), answer),
        );
        Box::pin(async move {
            let carried = carrying.await;
            if carried
                .as_ref()
                .is_err_and(|error| error.code != code::LOST)
            {
                answers.ask(&to); // it may come again; whether it can be taken, the connector knows
            }
            carried
        })
    }

    fn deliver(
        &self,
        to: QuestionRef,
        answer: Draft,
        capabilities: Arc<Capabilities>,
        inlet: Arc<dyn Inlet>,
    ) -> BoxFuture<Result<(), RpcError>> {
        let _asked_here = self.answers.take(&to);
        self.connector.deliver(to, answer, capabilities, inlet)
    }

    fn notify(&self, session: SessionKey, message: Draft) -> BoxFuture<()> {
        self.connector.notify(session, message)
    }

    fn close(&self, session: SessionKey, closing: Closing) -> BoxFuture<()> {
        self.answers.forget(&session);
        self.connector.close(session, closing)
    }
}
