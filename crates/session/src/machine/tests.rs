use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

type Small = Machine<u64, u64>;

fn id(number: i64) -> Id {
    Id::integer(number)
}

/// FRM-06: an id in flight is refused, an id that is free again is accepted.
#[test]
fn frm_06_an_id_in_flight_is_refused_and_a_finished_one_is_not() {
    let mut machine = Small::new(true);
    let first = machine.begin(&id(1), 10).unwrap();
    assert_eq!(machine.begin(&id(1), 11), Err(Refused::Duplicate));
    machine
        .begin(&Id::string("1"), 12)
        .expect("case 53: 1 and \"1\" are different ids");
    assert!(machine.finish(&id(1), first).0);
    let second = machine.begin(&id(1), 13).unwrap();
    assert_ne!(first, second);
    assert!(
        !machine.finish(&id(1), first).0,
        "a late end of the first call is not the second's"
    );
    assert!(machine.finish(&id(1), second).0);
}

/// CAN-03, 8.2: whoever reaches the machine first wins.
#[test]
fn can_03_a_response_after_a_cancel_is_dropped_and_the_reverse() {
    let mut machine = Small::new(true);
    let ticket = machine.begin(&id(1), 10).unwrap();
    assert_eq!(machine.cancel(&id(1)).map(|(handle, _)| handle), Some(10));
    assert!(!machine.finish(&id(1), ticket).0);
    let ticket = machine.begin(&id(2), 11).unwrap();
    assert!(machine.finish(&id(2), ticket).0);
    assert!(machine.cancel(&id(2)).is_none(), "CAN-04");
}

/// EL-18, STA-16: one answer a question; a question ends with its call.
#[test]
fn el_18_the_first_answer_wins_and_questions_end_with_their_call() {
    let mut machine = Small::new(true);
    let ticket = machine.begin(&id(1), 10).unwrap();
    machine.ask(id(100), Some(ticket), 5).unwrap();
    machine.ask(id(101), Some(ticket), 6).unwrap();
    machine.ask(id(102), None, 7).unwrap();
    assert_eq!(machine.answer(&id(100)).map(|(_, open)| open), Some(5));
    assert_eq!(machine.answer(&id(100)), None);
    assert_eq!(
        machine
            .withdraw(|question| *question == 7)
            .map(|(id, _)| id),
        Some(id(102))
    );
    let (sent, over) = machine.finish(&id(1), ticket);
    assert!(sent);
    assert_eq!(over, [(id(101), 6)]);
    assert_eq!(machine.ask(id(103), Some(ticket), 8), Err(8));
}

#[derive(Debug, Clone)]
enum Step {
    Ready,
    Begin(i64),
    Finish(usize),
    Cancel(i64),
    Ask(Option<usize>),
    Answer(i64),
    Withdraw(u64),
    End,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Ready),
        8 => (0..6i64).prop_map(Step::Begin),
        8 => (0..12usize).prop_map(Step::Finish),
        3 => (0..6i64).prop_map(Step::Cancel),
        6 => prop::option::of(0..12usize).prop_map(Step::Ask),
        5 => (0..30i64).prop_map(Step::Answer),
        2 => (0..30u64).prop_map(Step::Withdraw),
        1 => Just(Step::End),
    ]
}

/// What must be true of a session over its whole life, kept beside the machine.
#[derive(Default)]
struct Ledger {
    begun: Vec<(i64, Ticket, u64)>,
    ended: HashSet<u64>,
    asked: HashMap<u64, Option<u64>>,
    closed: HashSet<u64>,
    readies: usize,
    over: bool,
}

impl Ledger {
    fn end_call(&mut self, handle: u64) {
        assert!(self.ended.insert(handle), "call {handle} ended twice");
    }

    fn close(&mut self, question: u64) {
        assert!(
            self.closed.insert(question),
            "question {question} handed out twice"
        );
    }

    fn apply(&mut self, machine: &mut Small, step: Step) {
        match step {
            Step::Ready => self.readies += usize::from(machine.ready()),
            Step::Begin(number) => {
                let handle = self.begun.len() as u64;
                match machine.begin(&id(number), handle) {
                    Ok(ticket) => self.begun.push((number, ticket, handle)),
                    Err(Refused::Ended) => assert!(self.over),
                    Err(Refused::Duplicate) => {
                        let live = |(other, _, call): &(i64, Ticket, u64)| {
                            *other == number && !self.ended.contains(call)
                        };
                        assert!(self.begun.iter().any(live));
                    }
                }
            }
            Step::Finish(index) => {
                let Some((number, ticket, handle)) = self.begun.get(index).copied() else {
                    return;
                };
                let (sent, over) = machine.finish(&id(number), ticket);
                if sent {
                    self.end_call(handle);
                }
                over.into_iter()
                    .for_each(|(_, question)| self.close(question));
            }
            Step::Cancel(number) => {
                if let Some((handle, over)) = machine.cancel(&id(number)) {
                    self.end_call(handle);
                    over.into_iter()
                        .for_each(|(_, question)| self.close(question));
                }
            }
            Step::Ask(about) => self.ask(machine, about),
            Step::Answer(number) => {
                if let Some((_, question)) = machine.answer(&id(1000 + number)) {
                    self.close(question);
                }
            }
            Step::Withdraw(which) => {
                if let Some((_, question)) = machine.withdraw(|question| *question == which) {
                    self.close(question);
                }
            }
            Step::End => {
                self.over = true;
                let remains = machine.end();
                remains
                    .calls
                    .into_iter()
                    .for_each(|handle| self.end_call(handle));
                remains
                    .questions
                    .into_iter()
                    .for_each(|question| self.close(question));
            }
        }
    }

    fn ask(&mut self, machine: &mut Small, about: Option<usize>) {
        let call = about.and_then(|index| self.begun.get(index).copied());
        let question = self.asked.len() as u64;
        let number = 1000 + i64::try_from(question).unwrap();
        self.asked
            .insert(question, call.map(|(_, _, handle)| handle));
        let ticket = call.map(|(_, ticket, _)| ticket);
        if let Err(back) = machine.ask(id(number), ticket, question) {
            let dead = call.is_some_and(|(_, _, handle)| self.ended.contains(&handle));
            assert!(self.over || dead, "a question about a live call is taken");
            self.close(back);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// LIF-05, CAN-03, EL-18, case 65: whatever the order of events, every call ends once, every
    /// question is handed out once, `initialized` counts once, and nothing outlives the session.
    #[test]
    fn every_call_ends_once_and_nothing_outlives_the_session(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut machine = Small::new(false);
        let mut ledger = Ledger::default();
        for step in steps {
            ledger.apply(&mut machine, step);
            machine.check_invariants();
        }
        ledger.apply(&mut machine, Step::End);
        machine.check_invariants();
        prop_assert!(ledger.readies <= 1);
        prop_assert_eq!(ledger.ended.len(), ledger.begun.len());
        prop_assert_eq!(ledger.closed.len(), ledger.asked.len());
        prop_assert_eq!(machine.counts(), (0, 0));
    }
}
