//! Each kind of fault, put into a good history, is named, and nothing else is.

use super::*;
use crate::history::{
    AnswerRecord, Blow, CallRecord, CancelRecord, Close, End, Entry, Fault, Forgery, Heard, Kind,
    Micros, News, NewsHeard, NewsRecord, Resumed, Seat, What,
};

const SECOND: Micros = 1_000_000;
const START: Micros = 1_000 * SECOND;
const OWNER: Seat = Seat {
    replica: 1,
    life: 0,
};

const TERMS: Terms = Terms {
    rolling: false,
    loses_tails: false,
    open_calls: 5,
    open_share: 90,
    events: 1,
};

fn heard(at: Micros, id: u64, what: What) -> Heard {
    Heard {
        at: START + at,
        id: Some(format!("id{id}")),
        what,
    }
}

fn unknown() -> End {
    End::Error {
        code: -31_004,
        reason: "outcome_unknown".to_owned(),
    }
}

/// What the upstream did: a call of four events with a question after the second.
fn ledger() -> Vec<Entry> {
    let key = || "c1".to_owned();
    let emitted = |number: u64| Entry::Emitted {
        at: START + number * SECOND,
        key: key(),
        number,
    };
    let mut ledger = vec![Entry::Called {
        at: START,
        key: key(),
    }];
    ledger.extend((1..=4).map(emitted));
    ledger.push(Entry::Asked {
        at: START + 2 * SECOND,
        key: key(),
        question: "q-c1".to_owned(),
    });
    ledger.push(Entry::Answered {
        at: START + 2 * SECOND + 50_000,
        question: "q-c1".to_owned(),
        content: "yes".to_owned(),
    });
    ledger.push(Entry::Ended {
        at: START + 5 * SECOND,
        key: key(),
    });
    ledger.extend((1..=3).map(|number| Entry::Noticed {
        at: START + number * SECOND,
        key: "w1".to_owned(),
        number,
        stream: Some("get-1".to_owned()),
    }));
    ledger
}

/// The call as its client saw it.
fn answered() -> CallRecord {
    let mut messages: Vec<Heard> = (1..=4)
        .map(|number| heard(number * SECOND + 100, number, What::Event(number)))
        .collect();
    let asked = What::Question("q-c1".to_owned());
    messages.insert(2, heard(2 * SECOND + 200, 20, asked));
    messages.push(heard(5 * SECOND + 100, 5, What::End(End::Result)));
    CallRecord {
        key: "c1".to_owned(),
        kind: Kind::Asking,
        session: 0,
        started: START,
        owner: Some(OWNER),
        heard: messages,
        resumed: vec![Resumed {
            broke: START + 3 * SECOND + 500_000,
            answered: START + 3 * SECOND + 900_000,
            status: 200,
            reader: None,
        }],
        close: Close::Answered,
        closed: START + 6 * SECOND,
        afterwards: Some((405, 0)),
    }
}

/// Its owner is killed after the third event, and nothing is wrong.
fn good() -> History {
    History {
        ledger: ledger(),
        calls: vec![answered()],
        news: vec![NewsRecord {
            key: "w1".to_owned(),
            session: 1,
            heard: (1..=3).map(|number| news(number, 1)).collect(),
            resumed: Vec::new(),
            refused: Vec::new(),
            until: START + 10 * SECOND,
        }],
        answers: vec![AnswerRecord {
            question: "q-c1".to_owned(),
            session: 0,
            id: 3,
            content: "yes".to_owned(),
            taken: Some(START + 2 * SECOND + 60_000),
        }],
        forgeries: vec![forgery(400, 0)],
        faults: vec![killed(3 * SECOND + 500_000)],
        ..History::default()
    }
}

fn news(number: u64, stream: usize) -> NewsHeard {
    NewsHeard {
        at: START + number * SECOND + 100,
        stream,
        id: Some(format!("news{number}")),
        what: News::Number(number),
    }
}

fn forgery(status: u16, shown: usize) -> Forgery {
    Forgery {
        what: "an altered id",
        status,
        shown,
    }
}

fn killed(at: Micros) -> Fault {
    Fault {
        at: START + at,
        until: START + at + SECOND,
        blow: Blow::KillOwner,
        seat: Some(OWNER),
        open_calls: 5,
    }
}

fn found(history: &History, terms: Terms) -> Vec<(&'static str, u64)> {
    let verdict = judge(history, terms);
    let failed = verdict.checks.into_iter().filter(|check| !check.holds());
    failed.map(|check| (check.name, check.found)).collect()
}

/// The good history with one thing changed: what is found.
fn spoilt(spoil: impl FnOnce(&mut History)) -> Vec<(&'static str, u64)> {
    let mut history = good();
    spoil(&mut history);
    found(&history, TERMS)
}

fn call(history: &mut History) -> &mut CallRecord {
    &mut history.calls[0]
}

#[test]
fn a_good_history_passes_and_its_facts_are_told() {
    let verdict = judge(&good(), TERMS);
    assert_eq!(verdict.score(), (23, 0), "{:?}", verdict.checks);
    assert_eq!(verdict.caught().count(), 0);
    let fact = |name: &str| {
        let facts = verdict.facts.iter();
        let mut found = facts.filter(|(fact, _)| fact.trim() == name);
        found.next().map(|(_, value)| value.clone()).unwrap()
    };
    assert_eq!(fact("take-overs"), "1");
    assert_eq!(fact("valid resumes of calls"), "1");
    assert_eq!(fact("worst resume time"), "400.0ms");
    assert_eq!(fact("events delivered"), "4");
    assert_eq!(fact("questions answered"), "1");
    assert_eq!(fact("kill -9 of owners"), "1");
}

#[test]
fn el_16_a_lost_event_is_named() {
    let found = spoilt(|history| {
        call(history).heard.remove(1);
    });
    assert_eq!(found, [("events lost", 1)]);
}

#[test]
fn el_16_a_repeated_event_is_named() {
    let found = spoilt(|history| {
        let again = call(history).heard[3].clone();
        call(history).heard.insert(4, again);
    });
    assert_eq!(found, [("events duplicated", 1)]);
    let question = spoilt(|history| {
        let again = call(history).heard[2].clone();
        call(history).heard.insert(3, again);
    });
    assert_eq!(question, [("events duplicated", 1)]);
}

/// EL-22: what came without an id while the store was away may come again with one.
#[test]
fn el_22_an_event_that_came_without_an_id_may_come_again() {
    let found = spoilt(|history| {
        let mut first = call(history).heard[3].clone();
        first.id = None;
        call(history).heard.insert(3, first);
    });
    assert_eq!(found, []);
}

#[test]
fn el_02_events_out_of_order_are_named() {
    let found = spoilt(|history| call(history).heard.swap(0, 1));
    assert_eq!(found, [("events out of order", 1)]);
    let behind = spoilt(|history| {
        let last = call(history).heard.len() - 1;
        call(history).heard.swap(last - 1, last);
    });
    assert_eq!(behind, [("events out of order", 1)]);
}

#[test]
fn el_14_a_call_without_terminal_is_named() {
    let found = spoilt(|history| {
        call(history).heard.pop();
        call(history).close = Close::GaveUp;
        call(history).afterwards = None;
    });
    assert_eq!(found, [("silent losses", 1), ("without terminal", 1)]);
}

#[test]
fn el_14_two_terminals_are_named() {
    let found = spoilt(|history| {
        let mut again = call(history).heard[5].clone();
        again.id = Some("id6".to_owned());
        call(history).heard.push(again);
    });
    assert_eq!(found, [("several terminals", 1)]);
    let later = spoilt(|history| call(history).afterwards = Some((200, 1)));
    assert_eq!(later, [("several terminals", 1)]);
}

/// EL-15: a terminal is late from the moment on when somebody could tell it.
#[test]
fn el_15_a_late_terminal_is_named_from_when_it_could_be_told() {
    let lose = |history: &mut History| {
        call(history).kind = Kind::Plain;
        call(history).heard.truncate(4);
        call(history)
            .heard
            .push(heard(20 * SECOND, 9, What::End(unknown())));
        call(history).closed = START + 21 * SECOND;
    };
    assert_eq!(spoilt(lose), [("late terminals", 1)]);
    let hindered = |blow, seat| {
        spoilt(|history| {
            lose(history);
            call(history).resumed[0].reader = Some(Seat {
                replica: 1,
                life: 0,
            });
            let fault = killed(5 * SECOND);
            history.faults.push(Fault {
                blow,
                seat,
                until: START + 8 * SECOND,
                ..fault
            });
        })
    };
    assert_eq!(hindered(Blow::KillStore, None), []);
    let seat = |replica| Some(Seat { replica, life: 0 });
    assert_eq!(hindered(Blow::Stop, seat(1)), []);
    assert_eq!(hindered(Blow::Stop, seat(2)), [("late terminals", 1)]);
    let read_before = spoilt(|history| {
        lose(history);
        let mut resumed = call(history).resumed[0];
        call(history).resumed[0].reader = seat(1);
        resumed.reader = seat(2);
        call(history).resumed.push(resumed);
        history.faults.push(Fault {
            blow: Blow::Stop,
            seat: seat(1),
            until: START + 8 * SECOND,
            ..killed(5 * SECOND)
        });
    });
    assert_eq!(read_before, []);
}

/// EL-22: what came without an id comes again behind the end, and nothing else.
#[test]
fn el_22_what_had_no_id_may_come_again_behind_the_end() {
    let behind = |more: usize| {
        spoilt(|history| {
            let heard = &mut call(history).heard;
            let from = heard.len() - 2;
            heard[from..].iter_mut().for_each(|heard| heard.id = None);
            call(history).afterwards = Some((200, more));
        })
    };
    assert_eq!(behind(0), [], "its owner died before the store had it");
    assert_eq!(behind(2), []);
    assert_eq!(behind(3), [("several terminals", 1)]);
}

#[test]
fn el_13_a_refused_resume_is_named() {
    let found = spoilt(|history| {
        call(history).heard.truncate(4);
        call(history).close = Close::ResumeRefused(405);
        call(history).afterwards = None;
        history.ledger.pop();
        history
            .ledger
            .retain(|entry| !matches!(entry, Entry::Ended { .. }));
    });
    assert!(found.contains(&("resumes refused", 1)), "{found:?}");
    assert!(found.contains(&("without terminal", 1)), "{found:?}");
    let standalone = spoilt(|history| history.news[0].refused.push(400));
    assert_eq!(standalone, [("resumes refused", 1)]);
}

/// EL-15: an unknown outcome is right for a call that cannot be resumed and whose owner died.
#[test]
fn el_15_an_unknown_outcome_needs_a_death_and_a_call_that_cannot_be_resumed() {
    let lose = |history: &mut History, kind| {
        call(history).kind = kind;
        call(history).heard.truncate(4);
        call(history)
            .heard
            .push(heard(8 * SECOND, 9, What::End(unknown())));
        call(history).closed = START + 9 * SECOND;
    };
    assert_eq!(spoilt(|history| lose(history, Kind::Plain)), []);
    let resumable = spoilt(|history| lose(history, Kind::Resumable));
    assert_eq!(resumable, [("wrong terminals", 1)]);
    let unhurt = spoilt(|history| {
        lose(history, Kind::Plain);
        history.faults[0].at = START + 30 * SECOND;
        history.faults[0].until = START + 31 * SECOND;
    });
    assert_eq!(unhurt, [("wrong terminals", 1)]);
    let gap = spoilt(|history| {
        lose(history, Kind::Plain);
        call(history).heard.remove(0);
    });
    assert_eq!(gap, [("silent losses", 1)]);
    let late = spoilt(|history| {
        lose(history, Kind::Plain);
        call(history).heard[4].at = START + 19 * SECOND;
        call(history).closed = START + 20 * SECOND;
    });
    assert_eq!(late, [("late terminals", 1)]);
}

#[test]
fn el_13_a_lost_history_must_be_due_to_a_lost_tail() {
    let lose = |history: &mut History| {
        let end = End::Error {
            code: -31_004,
            reason: "stream_history_lost".to_owned(),
        };
        call(history).heard.truncate(4);
        call(history)
            .heard
            .push(heard(5 * SECOND, 9, What::End(end)));
    };
    assert_eq!(spoilt(lose), [("wrong terminals", 1)]);
    let mut history = good();
    lose(&mut history);
    let mut failover = killed(3 * SECOND);
    failover.blow = Blow::Failover;
    failover.seat = None;
    history.faults.push(failover);
    let terms = Terms {
        loses_tails: true,
        ..TERMS
    };
    assert_eq!(found(&history, TERMS), [("wrong terminals", 1)]);
    assert_eq!(found(&history, terms), [], "its owner was killed too");
    let mut alive = history.clone();
    alive.faults.retain(|fault| fault.blow == Blow::Failover);
    let alive = found(&alive, terms);
    assert_eq!(alive, [("wrong terminals", 1)], "its owner could repair it");
    call(&mut history).close = Close::ResumeRefused(405);
    call(&mut history).afterwards = None;
    call(&mut history).heard.pop();
    assert_eq!(found(&history, terms), [], "nobody has anything of it");
    history.faults.retain(|fault| fault.blow == Blow::Failover);
    assert!(found(&history, terms).contains(&("resumes refused", 1)));
}

#[test]
fn el_15_a_call_that_ran_twice_is_named() {
    let found = spoilt(|history| {
        let again = history.ledger[0].clone();
        history.ledger.push(again);
    });
    assert_eq!(found, [("calls run twice", 1)]);
    let nameless = spoilt(|history| {
        history.ledger.push(Entry::Called {
            at: START + SECOND,
            key: String::new(),
        });
    });
    assert_eq!(nameless, [("calls run twice", 1)]);
}

#[test]
fn res_07_an_id_of_two_messages_is_named() {
    let found = spoilt(|history| call(history).heard[1].id = Some("id1".to_owned()));
    assert_eq!(found, [("event ids used twice", 1)]);
}

#[test]
fn ses_07_foreign_messages_are_named() {
    let found = spoilt(|history| {
        call(history)
            .heard
            .insert(1, heard(SECOND, 30, What::Foreign("x".to_owned())));
    });
    assert_eq!(found, [("foreign messages", 1)]);
    let invented = spoilt(|history| {
        call(history)
            .heard
            .insert(5, heard(5 * SECOND, 30, What::Event(7)));
    });
    assert_eq!(invented, [("foreign messages", 1)]);
    let news = spoilt(|history| history.news[0].heard[0].what = News::Foreign("x".to_owned()));
    assert!(news.contains(&("foreign messages", 1)), "{news:?}");
}

#[test]
fn el_04_a_forgery_that_is_served_is_named() {
    for (status, shown, wrong) in [
        (400, 0, false),
        (404, 0, false),
        (405, 0, false),
        (200, 0, true),
        (405, 2, true),
    ] {
        let found = spoilt(|history| history.forgeries.push(forgery(status, shown)));
        assert_eq!(!found.is_empty(), wrong, "{status} {shown}");
    }
}

#[test]
fn el_18_answers_arrive_once() {
    let answered = |history: &mut History, later: Micros, content: &str| {
        history.ledger.push(Entry::Answered {
            at: START + later,
            question: "q-c1".to_owned(),
            content: content.to_owned(),
        });
    };
    let twice = spoilt(|history| {
        answered(history, 2 * SECOND + 51_000, "yes");
        history.faults.clear();
    });
    assert!(twice.contains(&("answers repeated", 1)), "{twice:?}");
    // no crash lies between these, and none before them
    let early = spoilt(|history| answered(history, 2 * SECOND + 300_000, "yes"));
    assert_eq!(early, [("answers repeated", 1)]);
    let crashed = spoilt(|history| answered(history, 4 * SECOND, "yes"));
    assert_eq!(crashed, []);
    let other = spoilt(|history| answered(history, 4 * SECOND, "no"));
    assert!(other.contains(&("answers repeated", 1)), "{other:?}");
    assert!(other.contains(&("foreign messages", 1)), "{other:?}");
    let lost = spoilt(|history| {
        history
            .ledger
            .retain(|entry| !matches!(entry, Entry::Answered { .. }));
    });
    assert_eq!(lost, [("answers lost", 1)]);
}

#[test]
fn el_22_a_question_that_the_gateway_answers_itself_is_named() {
    let refuse = |history: &mut History| {
        for entry in &mut history.ledger {
            if let Entry::Answered { content, .. } = entry {
                "{\"error\":{}}".clone_into(content);
            }
        }
        history.answers.clear();
    };
    let found = spoilt(refuse);
    assert_eq!(found, [("questions answered by an error", 1)]);
    let lost = spoilt(|history| {
        refuse(history);
        call(history).kind = Kind::Plain;
        call(history).heard.truncate(4);
        let end = heard(5 * SECOND, 9, What::End(unknown()));
        call(history).heard.push(end);
    });
    assert_eq!(lost, [], "its client knows that the call is lost");
}

#[test]
fn an_answered_question_that_is_withdrawn_is_named() {
    let withdrawn = |at| {
        spoilt(|history| {
            let withdrawn = heard(at, 40, What::Withdrawn(3));
            call(history).heard.insert(3, withdrawn);
        })
    };
    assert_eq!(withdrawn(2 * SECOND + 300), [], "before the answer came");
    let undone = withdrawn(2 * SECOND + 500_000);
    assert_eq!(undone, [("answered questions withdrawn", 1)]);
}

#[test]
fn can_03_a_cancelled_call_has_no_terminal_and_its_upstream_is_told() {
    let cancel = |history: &mut History| {
        call(history).heard.truncate(5);
        call(history).close = Close::Cancelled;
        call(history).afterwards = None;
        history
            .ledger
            .retain(|entry| !matches!(entry, Entry::Ended { .. }));
        history.cancels.push(CancelRecord {
            key: "c1".to_owned(),
            taken: START + 4 * SECOND,
        });
    };
    let told = |history: &mut History, at: Micros| {
        let key = "c1".to_owned();
        history.ledger.push(Entry::Cancelled {
            at: START + at,
            key,
        });
    };
    let good = spoilt(|history| {
        cancel(history);
        told(history, 5 * SECOND);
    });
    assert_eq!(good, []);
    assert_eq!(spoilt(cancel), [("cancels lost", 1)]);
    let late = spoilt(|history| {
        cancel(history);
        told(history, 25 * SECOND);
    });
    assert_eq!(late, [("cancels lost", 1)]);
    let cut_off = spoilt(|history| {
        cancel(history);
        call(history).kind = Kind::Plain;
    });
    assert_eq!(cut_off, []);
    let before_an_id = |owner| {
        spoilt(|history| {
            cancel(history);
            call(history).close = Close::BrokenBeforeId;
            call(history).owner = owner;
        })
    };
    assert_eq!(
        before_an_id(Some(OWNER)),
        [],
        "it died with the only knowledge"
    );
    let other = Seat {
        replica: 2,
        life: 7,
    };
    assert_eq!(before_an_id(Some(other)), [("cancels lost", 1)]);
    let gap = spoilt(|history| {
        cancel(history);
        told(history, 5 * SECOND);
        call(history).heard.remove(1);
    });
    assert_eq!(gap, [("silent losses", 1)]);
}

#[test]
fn get_04_a_notification_on_two_streams_is_named() {
    let found = spoilt(|history| {
        let mut again = news(2, 2);
        again.id = Some("other".to_owned());
        history.news[0].heard.push(again);
    });
    assert_eq!(found, [("notifications repeated", 1)]);
    let order = spoilt(|history| history.news[0].heard.swap(0, 1));
    assert_eq!(order, [("notifications out of order", 1)]);
    let elsewhere = spoilt(|history| {
        history.news[0].heard.swap(0, 1);
        for entry in &mut history.ledger {
            if let Entry::Noticed {
                number: 2, stream, ..
            } = entry
            {
                *stream = Some("get-2".to_owned());
            }
        }
    });
    assert_eq!(elsewhere, [], "two streams of the upstream have no order");
}

/// EL-13: what a later "look again" makes good is no silent loss.
#[test]
fn el_13_a_lost_notification_must_be_told() {
    let lost = spoilt(|history| {
        history.news[0].heard.remove(1);
    });
    assert_eq!(lost, [("silent losses", 1)]);
    let repair = |at| NewsHeard {
        at,
        stream: 1,
        id: None,
        what: News::Repair,
    };
    let told = spoilt(|history| {
        history.news[0].heard[1] = repair(START + 3 * SECOND);
    });
    assert_eq!(told, []);
    let too_early = spoilt(|history| {
        history.news[0].heard[1] = repair(START + SECOND);
    });
    assert_eq!(too_early, [("silent losses", 1)]);
    let unheard = spoilt(|history| {
        history.news[0].heard.remove(2);
        history.news[0].until = START + 2 * SECOND;
    });
    assert_eq!(unheard, []);
}

#[test]
fn ses_05_a_session_that_is_lost_is_named() {
    let found = spoilt(|history| history.lost_sessions.push("1".to_owned()));
    assert_eq!(found, [("sessions lost", 1)]);
}

/// A restart in good order allows no failed request and no refused connection.
#[test]
fn c7_a_rolling_restart_forgives_nothing() {
    let rolling = Terms {
        rolling: true,
        ..TERMS
    };
    assert_eq!(found(&good(), rolling), []);
    let mut broken = good();
    call(&mut broken).close = Close::BrokenBeforeId;
    call(&mut broken).heard.clear();
    call(&mut broken).afterwards = None;
    assert_eq!(found(&broken, TERMS), [("events delivered, at least", 0)]);
    let strict = found(&broken, rolling);
    assert!(strict.contains(&("requests failed", 1)), "{strict:?}");
    let mut refused = good();
    refused.unserved = 2;
    assert_eq!(found(&refused, rolling), [("connections refused", 2)]);
}

#[test]
fn a_run_with_too_little_in_flight_fails_and_is_no_proof_of_a_fault() {
    let mut history = good();
    history.faults[0].open_calls = 4;
    let terms = Terms { events: 5, ..TERMS };
    let verdict = judge(&history, terms);
    assert_eq!(verdict.score().1, 2);
    assert_eq!(verdict.caught().count(), 0);
}
