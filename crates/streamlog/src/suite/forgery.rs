//! T49: what a client did not get from us, in any number, among what it did.

use super::*;
use crate::simulation::Dice;
use crate::{EventIds, Verified};

const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
const STREAMS: usize = 10;
const EVENTS: usize = 100;
/// Forgeries for each valid id.
const FORGED: usize = 10;

/// An id of ours and where it stands.
struct Valid {
    id: EventId,
    stream: StreamRef,
    seq: u64,
}

/// A thousand ids of one session, and ten thousand that are not, in no order.
pub(crate) struct Forgeries {
    session: SessionKey,
    valid: Vec<Valid>,
    forged: Vec<String>,
    _writers: Vec<Writer>,
}

impl Forgeries {
    /// The ids are of events that this log has.
    pub(crate) async fn of(log: &Arc<dyn StreamLog>) -> Self {
        let session = session("acme", "alice", "s1");
        log.begin_session(&session).await.unwrap();
        let (mut valid, mut writers) = (vec![], vec![]);
        for number in 0..STREAMS {
            let request = vec![text(&number.to_string())];
            let writer = Writer::open(log, &session, request).await.unwrap();
            writer.append(vec![text("event"); EVENTS]).await.unwrap();
            let mut entries = vec![];
            while entries.len() < EVENTS {
                tokio::task::yield_now().await;
                entries = log.read(writer.stream(), 0, EVENTS).await.unwrap();
            }
            valid.extend(entries.into_iter().map(|entry| Valid {
                id: entry.id.expect("it is kept"),
                stream: writer.stream().clone(),
                seq: entry.seq,
            }));
            writers.push(writer);
        }
        let forged = forge(&session, &valid);
        assert_eq!((valid.len(), forged.len()), (1_000, 10_000));
        Self {
            session,
            valid,
            forged,
            _writers: writers,
        }
    }

    /// None of the forgeries is taken, and for none of them is anything read.
    pub(crate) async fn are_refused(&self, log: &dyn StreamLog, reads: impl Fn() -> u64) {
        let before = reads();
        for forged in &self.forged {
            self.is_refused(log, forged).await;
        }
        assert_eq!(reads(), before, "nothing is read before the MAC holds");
    }

    /// The same with the valid ids among them, of which every one is taken.
    pub(crate) async fn are_told_apart(&self, log: &dyn StreamLog, reads: impl Fn() -> u64) {
        for (valid, forged) in self.valid.iter().zip(self.forged.chunks(FORGED)) {
            let before = reads();
            for forged in forged {
                self.is_refused(log, forged).await;
            }
            assert_eq!(reads(), before, "nothing is read before the MAC holds");
            let resume = log.resume(&self.session, valid.id.as_str()).await.unwrap();
            let expected = Resume::Replay {
                stream: valid.stream.clone(),
                after: valid.seq,
            };
            assert_eq!(resume, expected, "{}", valid.id);
            assert!(reads() > before, "what is read is counted");
        }
    }

    async fn is_refused(&self, log: &dyn StreamLog, forged: &str) {
        let resume = log.resume(&self.session, forged).await.unwrap();
        assert_eq!(resume, Resume::Foreign, "{forged}");
    }
}

fn forge(session: &SessionKey, valid: &[Valid]) -> Vec<String> {
    let mut dice = Dice(49);
    let ours = EventIds::new(sealer());
    let theirs = [
        (super::session("acme", "alice", "s2"), sealer()),
        (super::session("acme", "bob", "s1"), sealer()),
        (super::session("evil", "alice", "s1"), sealer()),
        (session.clone(), Sealer::new(keyring("k1", 2))),
    ];
    let mut forged = vec![];
    for (number, valid) in valid.iter().enumerate() {
        let id = valid.id.as_str();
        let Ok(Verified::Ours(position)) = ours.verify(session, id) else {
            panic!("{id} is ours");
        };
        // the same place, of another session, principal, tenant or key
        for (session, sealer) in &theirs {
            let minted = EventIds::new(sealer.clone()).mint(session, &position);
            forged.push(minted.as_str().to_owned());
        }
        // one character changed, at every place in turn
        for step in 0..4 {
            forged.push(changed(id, 4 * number + step, &mut dice));
        }
        // nothing but chance, in the form of an id and in none
        forged.push(format!("1k1.{}", chance(55, &mut dice)));
        forged.push(chance(number % 90, &mut dice));
    }
    forged
}

/// The key's name stays: one of a key that nobody knows is a gap and no forgery.
fn changed(id: &str, turn: usize, dice: &mut Dice) -> String {
    let mut bytes = id.as_bytes().to_vec();
    let place = match turn % (bytes.len() - 2) {
        0 => 0,
        after => after + 2,
    };
    let before = bytes[place];
    while bytes[place] == before {
        bytes[place] = ALPHABET[dice.below(ALPHABET.len())];
    }
    String::from_utf8(bytes).unwrap()
}

fn chance(length: usize, dice: &mut Dice) -> String {
    let any = |_| char::from(ALPHABET[dice.below(ALPHABET.len())]);
    (0..length).map(any).collect()
}
