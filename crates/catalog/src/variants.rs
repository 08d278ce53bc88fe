//! A few variants of one thing, least recently used out first.
//!
//! What a client declares decides what it is shown, and clients declare what they like: the number
//! of variants kept must not be theirs to choose.

/// Most variants of one list.
const MAX: usize = 8;

/// Values by a key that only equality is asked of.
#[derive(Debug)]
pub(crate) struct Variants<K, V> {
    /// Least recently used first.
    entries: Vec<(K, V)>,
}

impl<K, V> Default for Variants<K, V> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
        }
    }
}

impl<K: PartialEq + Clone, V> Variants<K, V> {
    pub(crate) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        let entry = match self.entries.iter().position(|(known, _)| known == key) {
            Some(at) => self.entries.remove(at),
            None => {
                if self.entries.len() >= MAX {
                    self.entries.remove(0);
                }
                (key.clone(), make())
            }
        };
        self.entries.push(entry);
        let (_, value) = self.entries.last_mut().expect("pushed just now");
        value
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX, Variants};

    #[test]
    fn the_least_recently_used_variant_goes() {
        let mut variants = Variants::default();
        for key in 0..MAX {
            variants.get_or_insert_with(&key, || key);
        }
        variants.get_or_insert_with(&0, || 100);
        variants.get_or_insert_with(&MAX, || MAX);
        assert_eq!(variants.values().count(), MAX);
        assert_eq!(*variants.get_or_insert_with(&0, || 100), 0);
        assert_eq!(*variants.get_or_insert_with(&1, || 100), 100);
    }
}
