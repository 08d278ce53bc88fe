//! The calls that are open on one upstream channel, by our id, and what reaches them from there.
//!
//! A channel (a process, or the standalone stream of a session) is read by one task for all calls.
//! It must never wait for a slow one: notifications that do not fit into a call's queue are left
//! out (they inform, no more), and the answer has a place of its own.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use vestibule_exchange::Question;
use vestibule_frame::{Draft, Frame, Id};
use vestibule_terms::{FastHash, Method};

use crate::fault::Fault;
use crate::ids::CallId;
use crate::locked;

/// Notifications that wait for one call.
const QUEUE: usize = 128;

/// Something that reached a call over the channel.
#[derive(Debug)]
pub(crate) enum Word {
    /// A notification.
    Note(Method, Frame),
    /// A question for the client of this call.
    Question(Question),
    /// The upstream withdrew such a question.
    Withdrawn(Draft),
}

/// What a call waits for.
#[derive(Debug)]
pub(crate) enum Next {
    /// A word on the way.
    Word(Word),
    /// The end.
    Answer(Result<Frame, Fault>),
}

/// The open calls of one channel.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<HashMap<Arc<str>, Open, FastHash>>);

#[derive(Debug)]
struct Open {
    method: Method,
    place: Arc<Mutex<Place>>,
}

/// What waits for one call. Most calls get nothing here but their answer, and those over HTTP not
/// even that: an empty place costs next to nothing, unlike a channel with room for [`QUEUE`] words.
#[derive(Debug, Default)]
struct Place {
    words: VecDeque<Word>,
    answer: Option<Result<Frame, Fault>>,
    answered: bool,
    reader: Option<Waker>,
}

/// One open call; closes it when dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    id: Arc<str>,
    calls: Arc<Calls>,
    place: Arc<Mutex<Place>>,
}

// === impl Place ===

impl Place {
    /// Ends the call. False when it has been ended before.
    fn end(&mut self, answer: Result<Frame, Fault>) -> bool {
        if std::mem::replace(&mut self.answered, true) {
            return false;
        }
        self.answer = Some(answer);
        self.wake();
        true
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

// === impl Calls ===

impl Calls {
    /// Opens a call.
    pub(crate) fn open(self: &Arc<Self>, id: &CallId, method: Method) -> Ticket {
        let place = Arc::<Mutex<Place>>::default();
        let open = Open {
            method,
            place: Arc::clone(&place),
        };
        locked(&self.0).insert(id.key(), open);
        Ticket {
            id: id.key(),
            calls: Arc::clone(self),
            place,
        }
    }

    /// Ends the call of `id`. False when there is none: a late or foreign answer (CAN-05).
    pub(crate) fn answer(&self, id: &Id, answer: Result<Frame, Fault>) -> bool {
        let Some(text) = id.as_str() else {
            return false;
        };
        let calls = locked(&self.0);
        let open = calls.get(&*text);
        open.is_some_and(|open| locked(&open.place).end(answer))
    }

    /// Ends every call.
    pub(crate) fn fail_all(&self, fault: &Fault) {
        for open in locked(&self.0).values() {
            locked(&open.place).end(Err(fault.clone()));
        }
    }

    /// Brings a word to the call of that id; false when there is none or its queue is full.
    pub(crate) fn tell(&self, id: &str, word: Word) -> bool {
        let calls = locked(&self.0);
        let Some(open) = calls.get(id) else {
            return false;
        };
        let mut place = locked(&open.place);
        if place.words.len() >= QUEUE {
            return false;
        }
        place.words.push_back(word);
        place.wake();
        true
    }

    /// The one open call, if there is exactly one.
    pub(crate) fn only(&self) -> Option<Arc<str>> {
        self.only_where(|_| true)
    }

    /// The one open call during which a server may ask, if there is exactly one.
    pub(crate) fn only_asker(&self) -> Option<Arc<str>> {
        self.only_where(Method::may_ask)
    }

    fn only_where(&self, counts: impl Fn(Method) -> bool) -> Option<Arc<str>> {
        let calls = locked(&self.0);
        let mut hits = calls.iter().filter(|(_, open)| counts(open.method));
        let (id, _) = hits.next()?;
        hits.next().is_none().then(|| Arc::clone(id))
    }
}

// === impl Ticket ===

impl Ticket {
    /// What comes next; words before the answer. Cancel safe.
    pub(crate) async fn next(&mut self) -> Next {
        poll_fn(|context| {
            let mut place = locked(&self.place);
            if let Some(word) = place.words.pop_front() {
                return Poll::Ready(Next::Word(word));
            }
            if let Some(answer) = place.answer.take() {
                return Poll::Ready(Next::Answer(answer));
            }
            if place.answered {
                return Poll::Ready(Next::Answer(Err(Fault::Broken)));
            }
            let reader = context.waker();
            if !place.reader.as_ref().is_some_and(|r| r.will_wake(reader)) {
                place.reader = Some(reader.clone());
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        locked(&self.calls.0).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;
    use crate::testing::frame;

    fn note(n: usize) -> Word {
        let text =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"n":{n}}}}}"#);
        Word::Note(Method::Message, frame(&text))
    }

    fn answer(id: &CallId) -> Frame {
        frame(&format!(
            r#"{{"jsonrpc":"2.0","id":"{}","result":{{}}}}"#,
            id.as_str()
        ))
    }

    /// A call that does not read loses notifications, never its answer, and blocks nobody.
    #[tokio::test]
    async fn a_full_queue_loses_words_and_keeps_the_answer() {
        let calls = Arc::new(Calls::default());
        let id = Ids::new().call();
        let mut ticket = calls.open(&id, Method::ToolsCall);
        let told = (0..QUEUE + 10)
            .filter(|n| calls.tell(id.as_str(), note(*n)))
            .count();
        assert_eq!(told, QUEUE);
        assert!(calls.answer(&id.id(), Ok(answer(&id))));
        assert!(!calls.answer(&id.id(), Ok(answer(&id))), "answered once");
        for _ in 0..QUEUE {
            assert!(matches!(ticket.next().await, Next::Word(_)));
        }
        assert!(matches!(ticket.next().await, Next::Answer(Ok(_))));
    }

    /// Case 55, T41: an answer with another id ends nothing.
    #[tokio::test]
    async fn case_55_only_the_right_id_ends_a_call() {
        let calls = Arc::new(Calls::default());
        let ids = Ids::new();
        let (one, two) = (ids.call(), ids.call());
        let mut ticket = calls.open(&one, Method::ToolsCall);
        let other = calls.open(&two, Method::ToolsList);
        assert!(!calls.answer(&Id::integer(1), Ok(answer(&one))));
        assert_eq!(calls.only(), None);
        assert_eq!(calls.only_asker(), Some(one.key()));
        drop(other);
        assert_eq!(calls.only(), Some(one.key()));
        assert!(
            !calls.answer(&two.id(), Ok(answer(&two))),
            "closed calls take nothing"
        );
        calls.fail_all(&Fault::Broken);
        assert!(matches!(
            ticket.next().await,
            Next::Answer(Err(Fault::Broken))
        ));
        drop(ticket);
        assert_eq!(calls.only(), None);
    }
}
