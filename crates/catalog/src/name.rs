//! Exposed names of tools and prompts on a federated server. Pure.
//!
//! `{upstream}__{original}`; what does not fit the character set or the length is cut and marked by
//! a hash of (upstream, original). The table made from this is the only way back: a name is never
//! split, so what an upstream writes into its names cannot reach another upstream (T63).

use std::collections::HashSet;

use aws_lc_rs::digest::{SHA256, digest};
use vestibule_terms::UpstreamId;

/// Between upstream and original name. Upstream ids have no underscore.
pub const SEPARATOR: &str = "__";

/// Hexadecimal digits of the hash that marks a changed name.
const MARK_DIGITS: usize = 8;

/// Exposed names for items that are pairwise different, in the order of the items.
///
/// The outcome does not depend on that order (case 31): names that need no change come first, the
/// others take what is left in order of (upstream, original).
pub fn assign(items: &[(&UpstreamId, &str)], limit: usize) -> Vec<String> {
    let mut names: Vec<Option<String>> = items
        .iter()
        .map(|(upstream, original)| unchanged(upstream, original, limit))
        .collect();
    let mut taken: HashSet<String> = names.iter().flatten().cloned().collect();
    let mut changed: Vec<usize> = (0..items.len()).filter(|&at| names[at].is_none()).collect();
    changed.sort_unstable_by_key(|&at| items[at]);
    for at in changed {
        let (upstream, original) = items[at];
        let name = marked(upstream, original, limit, &taken);
        taken.insert(name.clone());
        names[at] = Some(name);
    }
    names.into_iter().flatten().collect()
}

/// The name when prefixing is all it takes.
fn unchanged(upstream: &UpstreamId, original: &str, limit: usize) -> Option<String> {
    let name = format!("{upstream}{SEPARATOR}{original}");
    (name.len() <= limit && original.bytes().all(is_allowed)).then_some(name)
}

fn marked(upstream: &UpstreamId, original: &str, limit: usize, taken: &HashSet<String>) -> String {
    let hash = hash(upstream, original);
    let readable: String = format!("{upstream}{SEPARATOR}{original}")
        .chars()
        .map(|c| {
            if u8::try_from(c).is_ok_and(is_allowed) {
                c
            } else {
                '_'
            }
        })
        .collect();
    let mut digits = MARK_DIGITS;
    loop {
        let mark: String = hash.chars().take(digits).collect();
        let room = limit.saturating_sub(mark.len() + 1);
        let name = format!("{}-{mark}", readable.chars().take(room).collect::<String>());
        // Two hashes that agree in all digits do not occur; the bound only ends the loop.
        if !taken.contains(&name) || digits >= hash.len() {
            return name;
        }
        digits += MARK_DIGITS;
    }
}

fn hash(upstream: &UpstreamId, original: &str) -> String {
    let content = format!("{upstream}\0{original}");
    let hash = digest(&SHA256, content.as_bytes());
    hash.as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn up(text: &str) -> UpstreamId {
        UpstreamId::new(text).unwrap()
    }

    fn one(upstream: &str, original: &str, limit: usize) -> String {
        assign(&[(&up(upstream), original)], limit).remove(0)
    }

    /// XT-370, TOL-02: prefix, character set, length, and what is marked by a hash.
    #[test]
    fn xt_370_names_are_prefixed_and_marked_when_changed() {
        assert_eq!(one("github", "search", 48), "github__search");
        assert_eq!(one("github", "a__b", 48), "github__a__b");
        let dotted = one("github", "repo.search", 48);
        assert!(
            dotted.starts_with("github__repo_search-") && dotted.len() == 28,
            "{dotted}"
        );
        let long = one("github", &"x".repeat(80), 48);
        assert_eq!(long.len(), 48);
        assert_ne!(one("github", "a.b", 48), one("github", "a:b", 48));
    }

    /// Case 29: a name at the limit is kept whole, one above it is cut.
    #[test]
    fn case_29_the_limit_is_exact() {
        let fits = "x".repeat(48 - "a__".len());
        assert_eq!(one("a", &fits, 48), format!("a__{fits}"));
        assert!(one("a", &format!("{fits}x"), 48).contains('-'));
    }

    /// T63, case 31: an upstream cannot forge another's names, and order does not matter.
    #[test]
    fn t63_a_forged_prefix_stays_inside_its_upstream() {
        let (a, b) = (up("a"), up("b"));
        let names = assign(&[(&a, "send"), (&b, "a__send"), (&b, "send")], 48);
        assert_eq!(names, ["a__send", "b__a__send", "b__send"]);
    }

    /// A name that looks like a marked one keeps its name; the marked one gives way.
    #[test]
    fn a_collision_with_a_plain_name_lengthens_the_mark() {
        let a = up("a");
        let taken = one("a", "x.y", 48);
        let plain = taken.strip_prefix("a__").unwrap();
        let names = assign(&[(&a, "x.y"), (&a, plain)], 48);
        assert_eq!(names[1], taken);
        assert!(
            names[0].len() == taken.len() + 8 && names[0].starts_with(&taken),
            "{names:?}"
        );
    }

    fn items() -> impl Strategy<Value = HashSet<(String, String)>> {
        let upstream = "[a-c][a-z0-9-]{0,3}".prop_filter("an id", |id| UpstreamId::new(id).is_ok());
        let original = prop_oneof!["[a-b_.-]{0,6}", "\\PC{0,60}", "[a-z]{40,90}"];
        proptest::collection::hash_set((upstream, original), 0..24)
    }

    proptest! {
        /// T63: routing is a bijection, deterministic under every order, within set and length.
        #[test]
        fn t63_assignment_is_a_bijection(items in items(), limit in 40usize..128) {
            let items: Vec<(UpstreamId, String)> =
                items.into_iter().map(|(u, o)| (up(&u), o)).collect();
            let forward: Vec<_> = items.iter().map(|(u, o)| (u, o.as_str())).collect();
            let backward: Vec<_> = forward.iter().rev().copied().collect();
            let names = assign(&forward, limit);
            let mut reversed = assign(&backward, limit);
            reversed.reverse();
            prop_assert_eq!(&names, &reversed);
            prop_assert_eq!(names.len(), items.len());
            let distinct: HashSet<_> = names.iter().collect();
            prop_assert_eq!(distinct.len(), names.len());
            for (name, (upstream, _)) in names.iter().zip(&items) {
                prop_assert!(name.len() <= limit && name.bytes().all(is_allowed));
                let prefix = format!("{upstream}{SEPARATOR}");
                prop_assert!(name.starts_with(&prefix));
            }
        }
    }
}
