//! Random numbers that a seed decides, so that a run can be repeated.

/// SplitMix64: small, and good enough to spread faults.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence of its own for one of many, whatever the others draw.
    #[must_use]
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        let mut mixer = Self(seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Self(mixer.next())
    }

    /// The next number.
    #[must_use = "drawing moves the sequence on"]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// One of `from..to`; `from` when there is none.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % to.saturating_sub(from).max(1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.between(0, 100) < chance
    }

    /// One of these; none of none.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let index = self.between(0, u64::try_from(from.len()).ok()?);
        from.get(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_sequence_and_bounds_hold() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| random.between(3, 9)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).iter().all(|number| (3..9).contains(number)));
        let mut random = Random::of(1, 2);
        assert_eq!(random.between(4, 4), 4);
        assert_eq!(random.pick::<u8>(&[]), None);
        assert!(!random.percent(0) && random.percent(100));
    }
}
