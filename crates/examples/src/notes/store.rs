//! The notes themselves, in memory, shared by all sessions. Pure.

use std::collections::BTreeMap;

/// How many notes there may be, and how long each part of one.
const MAX_NOTES: usize = 200;
const MAX_TEXT: usize = 4096;
/// What the URI of a note begins with; its number follows.
pub(super) const SCHEME: &str = "note://";

#[derive(Debug, Clone)]
pub(super) struct Note {
    pub(super) title: String,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct Store {
    notes: BTreeMap<u64, Note>,
    next: u64,
}

impl Store {
    /// Two notes, so that lists are not empty.
    pub(super) fn new() -> Self {
        let mut store = Self {
            notes: BTreeMap::new(),
            next: 1,
        };
        for (title, text) in [
            ("Welcome", "These notes live as long as the server runs."),
            ("Shopping", "Bread, salt, tea."),
        ] {
            let seeded = store.add(title, text);
            debug_assert!(seeded.is_ok(), "the first notes keep the limits");
        }
        store
    }

    /// Adds a note and returns its URI.
    pub(super) fn add(&mut self, title: &str, text: &str) -> Result<String, &'static str> {
        if self.notes.len() >= MAX_NOTES {
            return Err("there are too many notes; clear them first");
        }
        let note = checked(title, text)?;
        let number = self.next;
        self.next += 1;
        self.notes.insert(number, note);
        Ok(uri(number))
    }

    /// Changes the text of a note.
    pub(super) fn edit(&mut self, uri: &str, text: &str) -> Result<(), &'static str> {
        let note = number(uri).and_then(|number| self.notes.get_mut(&number));
        let note = note.ok_or("there is no such note")?;
        *note = checked(&note.title, text)?;
        Ok(())
    }

    pub(super) fn get(&self, uri: &str) -> Option<&Note> {
        self.notes.get(&number(uri)?)
    }

    pub(super) fn by_title(&self, title: &str) -> Option<&Note> {
        self.notes.values().find(|note| note.title == title)
    }

    /// Removes every note and says how many there were.
    pub(super) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.notes).len()
    }

    /// Every note with its URI, oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, &Note)> {
        self.notes.iter().map(|(number, note)| (uri(*number), note))
    }
}

fn checked(title: &str, text: &str) -> Result<Note, &'static str> {
    if title.trim().is_empty() || title.len() > MAX_TEXT || text.len() > MAX_TEXT {
        return Err("a note has a title, and at most 4096 bytes of title and of text");
    }
    Ok(Note {
        title: title.to_owned(),
        text: text.to_owned(),
    })
}

fn uri(number: u64) -> String {
    format!("{SCHEME}{number}")
}

/// The number of a note, of its one way to be written.
fn number(uri: &str) -> Option<u64> {
    let digits = uri.strip_prefix(SCHEME)?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_never_used_twice() {
        let mut store = Store::new();
        let first = store.add("a", "x").unwrap();
        assert_eq!(store.clear(), 3);
        let second = store.add("b", "y").unwrap();
        assert_ne!(first, second);
        assert!(store.get(&first).is_none());
        assert_eq!(store.get(&second).unwrap().text, "y");
    }

    #[test]
    fn the_store_is_bounded() {
        let mut store = Store::new();
        let added = (0..300).filter(|_| store.add("t", "x").is_ok()).count();
        assert_eq!(added, MAX_NOTES - 2);
        assert!(store.edit("note://1", &"x".repeat(5000)).is_err());
        assert!(store.edit("note://01", "x").is_err());
    }
}
