//! Ids and sessions that are not the client's own, mixed in: each must be refused, and show nothing.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::time::sleep;

use super::http::{Outgoing, send};
use super::world::{Seen, World};
use crate::history::Forgery;
use crate::random::Random;

const EVERY: Duration = Duration::from_millis(150);
/// How long something wrongly served is read.
const LOOK: Duration = Duration::from_millis(500);

/// Tries until the world is over.
pub(crate) async fn forge(world: Arc<World>) {
    let mut random = Random::of(world.seed, 0xF06E);
    while !world.is_over() {
        sleep(EVERY).await;
        let ids = world.ids();
        let (Some(own), Some(other)) = (random.pick(&ids), random.pick(&ids)) else {
            continue;
        };
        let Some(attempt) = attempt(own, other, &mut random) else {
            continue;
        };
        if let Some(forgery) = attempt.make(&world).await {
            world.write(|records| records.forgeries.push(forgery));
        }
    }
}

struct Attempt<'a> {
    what: &'static str,
    /// Whose credential and address it is made with.
    own: &'a Seen,
    session: &'a str,
    last: String,
}

/// A forgery of two ids: none that these two allow.
fn attempt<'a>(own: &'a Seen, other: &'a Seen, random: &mut Random) -> Option<Attempt<'a>> {
    let with = |what, session, last| Attempt {
        what,
        own,
        session,
        last,
    };
    match random.between(0, 3) {
        0 => {
            let last = altered(&own.id, random)?;
            Some(with("an altered id", &own.session, last))
        }
        1 if own.number != other.number => {
            let what = if own.tenant == other.tenant {
                "an id of another session"
            } else {
                "an id of another tenant"
            };
            Some(with(what, &own.session, other.id.clone()))
        }
        2 if own.tenant != other.tenant => Some(with(
            "a session of another tenant",
            &other.session,
            other.id.clone(),
        )),
        _ => None,
    }
}

/// The id with one other character in the part that authenticates it.
fn altered(id: &str, random: &mut Random) -> Option<String> {
    let length = u64::try_from(id.len()).ok()?;
    // the last character may hold bits that mean nothing
    let at = usize::try_from(random.between(length.checked_sub(14)?, length - 2)).ok()?;
    let mut characters: Vec<char> = id.chars().collect();
    let character = characters.get_mut(at)?;
    *character = if *character == 'A' { 'B' } else { 'A' };
    Some(characters.into_iter().collect())
}

impl Attempt<'_> {
    /// What came of it; none when that says nothing, since nobody answered.
    async fn make(&self, world: &World) -> Option<Forgery> {
        let outgoing = Outgoing {
            method: Method::GET,
            path: &self.own.path,
            key: &world.tenants.get(self.own.tenant)?.key,
            session: Some(self.session),
            last_event_id: Some(&self.last),
            body: String::new(),
        };
        let mut opened = send(world.calm, outgoing, |_| {}).await.ok()?;
        if opened.status >= 429 {
            return None;
        }
        let mut shown = 0;
        if opened.is_stream {
            while let Ok(Some(event)) = opened.next_within(LOOK).await {
                shown += usize::from(!event.data.is_empty());
            }
        }
        Some(Forgery {
            what: self.what,
            status: opened.status,
            shown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_altered_id_differs_in_one_character_near_its_end() {
        let id = "1k1.AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHHIIII";
        let mut random = Random::new(1);
        for _ in 0..50 {
            let altered = altered(id, &mut random).unwrap();
            let differing: Vec<usize> = id
                .chars()
                .zip(altered.chars())
                .enumerate()
                .filter(|(_, (before, after))| before != after)
                .map(|(at, _)| at)
                .collect();
            assert_eq!(differing.len(), 1);
            assert!(differing[0] >= id.len() - 14);
        }
        assert_eq!(super::altered("short", &mut random), None);
    }
}
