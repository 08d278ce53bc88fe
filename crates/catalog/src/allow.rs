//! What a server lets through: visibility and the `allow` globs over exposed names and URIs.
//!
//! One function for list, call, read, complete and subscribe, so that listed is permitted and
//! permitted is listed (T46, case 106).

use vestibule_terms::ServerPlan;
use vestibule_terms::plan::Visibility;

use crate::kind::Kind;

/// Whether the item of that exposed name, URI or template may be known to exist.
pub fn permits(plan: &ServerPlan, kind: Kind, exposed: &str) -> bool {
    let list = match kind {
        Kind::Tools => &plan.allow.tools,
        Kind::Prompts => &plan.allow.prompts,
        Kind::Resources | Kind::Templates => &plan.allow.resources,
    };
    sees_anything(plan)
        && list
            .as_ref()
            .is_none_or(|globs| globs.iter().any(|glob| matches(glob, exposed)))
}

/// Whether anything of the server may be known to exist.
pub fn sees_anything(plan: &ServerPlan) -> bool {
    match plan.visibility {
        Visibility::Nothing => false,
        Visibility::Everything => true,
    }
}

/// `*` is any text, `?` any character; everything else is itself, byte for byte (case 100).
fn matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                retry = Some((g + 1, t));
                g += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                g += 1;
                t += 1;
            }
            Some(_) | None => {
                let Some((after_star, from)) = retry else {
                    return false;
                };
                retry = Some((after_star, from + 1));
                g = after_star;
                t = from + 1;
            }
        }
    }
    glob.get(g..)
        .is_some_and(|rest| rest.iter().all(|c| *c == '*'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan;

    #[test]
    fn globs_match_as_documented() {
        for (glob, text, expected) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcd", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a", "ab", false),
            ("*+file:*", "gh+file:///x", true),
            ("**", "x", true),
        ] {
            assert_eq!(matches(glob, text), expected, "{glob} {text}");
        }
    }

    /// Case 100: names are byte-exact; a look-alike of a permitted name is not permitted.
    #[test]
    fn case_100_look_alikes_are_not_permitted() {
        let mut plan = plan("t", "s", &["a"]);
        plan.allow.tools = Some(vec!["a__list".to_owned()]);
        assert!(permits(&plan, Kind::Tools, "a__list"));
        for other in ["A__list", "a__list ", "a__lіst", "a__List"] {
            assert!(!permits(&plan, Kind::Tools, other), "{other}");
        }
        assert!(permits(&plan, Kind::Prompts, "anything"));
        plan.visibility = Visibility::Nothing;
        assert!(!permits(&plan, Kind::Tools, "a__list"));
    }
}
