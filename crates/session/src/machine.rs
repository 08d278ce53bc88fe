//! The state machine of one legacy session, without I/O: which calls are in flight, which questions
//! are open, and who is first where two race.
//!
//! Generic over what a call and a question are to their owner, so that the machine can be driven by
//! a simulation as well as by sockets.

use std::collections::HashMap;

use vestibule_frame::Id;

/// Names one accepted call; ids can be used again after it, tickets cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// Where a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `initialize` was answered; the client has not said it is ready.
    Opened,
    /// Both sides may speak.
    Ready,
    /// Over.
    Ended,
}

/// Why a call was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its id is in flight (FRM-06).
    Duplicate,
    /// The session has ended.
    Ended,
}

/// What the end of a session leaves to be ended.
#[derive(Debug)]
pub(crate) struct Remains<C, Q> {
    /// Calls in flight.
    pub(crate) calls: Vec<C>,
    /// Open questions.
    pub(crate) questions: Vec<Q>,
}

struct Running<C> {
    ticket: Ticket,
    handle: C,
}

struct Asked<Q> {
    about: Option<Ticket>,
    question: Q,
}

/// One session.
pub(crate) struct Machine<C, Q> {
    phase: Phase,
    next_ticket: u64,
    calls: HashMap<Id, Running<C>>,
    questions: HashMap<Id, Asked<Q>>,
}

impl<C, Q> Machine<C, Q> {
    /// A session that is open, and ready if the client has said so elsewhere.
    pub(crate) fn new(ready: bool) -> Self {
        Self {
            phase: if ready { Phase::Ready } else { Phase::Opened },
            next_ticket: 0,
            calls: HashMap::new(),
            questions: HashMap::new(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// The client is ready; true the first time.
    pub(crate) fn ready(&mut self) -> bool {
        let first = self.phase == Phase::Opened;
        if first {
            self.phase = Phase::Ready;
        }
        first
    }

    /// Accepts a request (FRM-06).
    pub(crate) fn begin(&mut self, id: &Id, handle: C) -> Result<Ticket, Refused> {
        if self.phase == Phase::Ended {
            return Err(Refused::Ended);
        }
        if self.calls.contains_key(id) {
            return Err(Refused::Duplicate);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.calls.insert(id.clone(), Running { ticket, handle });
        Ok(ticket)
    }

    /// The call has its response. True if it may be sent: a cancellation or the end of the session
    /// was not first (8.2). Its questions are over, and handed out.
    pub(crate) fn finish(&mut self, id: &Id, ticket: Ticket) -> (bool, Vec<(Id, Q)>) {
        let current = self
            .calls
            .get(id)
            .is_some_and(|running| running.ticket == ticket);
        if current {
            self.calls.remove(id);
        }
        (current, self.take_questions(ticket))
    }

    /// The client no longer wants the request (CAN-01); nothing for an unknown or finished id
    /// (CAN-04). The call's handle and its open questions.
    pub(crate) fn cancel(&mut self, id: &Id) -> Option<(C, Vec<(Id, Q)>)> {
        let running = self.calls.remove(id)?;
        Some((running.handle, self.take_questions(running.ticket)))
    }

    /// A question goes to the client under `id`. It is handed back when the session has ended or
    /// the call it is about has.
    pub(crate) fn ask(&mut self, id: Id, about: Option<Ticket>, question: Q) -> Result<(), Q> {
        let alive = |ticket: Ticket| self.calls.values().any(|running| running.ticket == ticket);
        if self.phase == Phase::Ended || about.is_some_and(|ticket| !alive(ticket)) {
            return Err(question);
        }
        self.questions.insert(id, Asked { about, question });
        Ok(())
    }

    /// The client answers. The question, and the call it is about, for the first answer only (EL-18,
    /// STA-16).
    pub(crate) fn answer(&mut self, id: &Id) -> Option<(Option<Ticket>, Q)> {
        let Asked { about, question } = self.questions.remove(id)?;
        Some((about, question))
    }

    /// An open question, which stays open.
    pub(crate) fn question(&self, id: &Id) -> Option<&Q> {
        self.questions.get(id).map(|asked| &asked.question)
    }

    /// The open question that `is_it` recognises is over; its id on the client's side.
    pub(crate) fn withdraw(&mut self, is_it: impl Fn(&Q) -> bool) -> Option<(Id, Q)> {
        let id = self
            .questions
            .iter()
            .find(|(_, asked)| is_it(&asked.question))
            .map(|(id, _)| id.clone())?;
        self.questions.remove(&id).map(|asked| (id, asked.question))
    }

    /// The session is over. Everything that was going on, once.
    pub(crate) fn end(&mut self) -> Remains<C, Q> {
        self.phase = Phase::Ended;
        Remains {
            calls: self
                .calls
                .drain()
                .map(|(_, running)| running.handle)
                .collect(),
            questions: self
                .questions
                .drain()
                .map(|(_, asked)| asked.question)
                .collect(),
        }
    }

    /// How many calls are in flight and how many questions are open.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.calls.len(), self.questions.len())
    }

    fn take_questions(&mut self, about: Ticket) -> Vec<(Id, Q)> {
        let ids: Vec<Id> = self
            .questions
            .iter()
            .filter(|(_, asked)| asked.about == Some(about))
            .map(|(id, _)| id.clone())
            .collect();
        ids.into_iter()
            .filter_map(|id| self.questions.remove(&id).map(|asked| (id, asked.question)))
            .collect()
    }
}

impl<C, Q> std::fmt::Debug for Machine<C, Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("phase", &self.phase)
            .field("calls", &self.calls.len())
            .field("questions", &self.questions.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl<C, Q> Machine<C, Q> {
    pub(crate) fn check_invariants(&self) {
        if self.phase == Phase::Ended {
            assert!(
                self.calls.is_empty() && self.questions.is_empty(),
                "nothing outlives the end"
            );
        }
        let mut tickets: Vec<Ticket> = self.calls.values().map(|running| running.ticket).collect();
        tickets.sort_unstable();
        tickets.dedup();
        assert_eq!(tickets.len(), self.calls.len(), "one ticket a call");
        for asked in self.questions.values() {
            if let Some(about) = asked.about {
                assert!(
                    tickets.contains(&about),
                    "a question does not outlive its call"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
