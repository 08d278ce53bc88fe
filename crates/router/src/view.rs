//! What a virtual server offers: the union over its upstreams, behind `initialize` and
//! `server/discover` alike (translation rules, sections 2.2, 10.4, 10.5).
//!
//! It is never made by waiting for an upstream to recover: what is known counts, what is unknown is
//! probed for three seconds, and after that the view is told without it and not to be kept.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use vestibule_catalog::allow;
use vestibule_catalog::name::SEPARATOR;
use vestibule_exchange::capability::UI_EXTENSION;
use vestibule_exchange::view::CacheScope;
use vestibule_exchange::{Call, Events, Final, Profile, ServerView};
use vestibule_frame::json;
use vestibule_terms::{Revision, ServerPlan, UpstreamId};

use crate::service::Router;

/// How long unknown upstreams may take to be probed.
const PROBE_WAIT: Duration = Duration::from_secs(3);
/// Lifetime of a complete view.
const TTL_MS: u64 = 60_000;
/// Longest instructions of one upstream, in bytes.
const PART_MAX: usize = 4 * 1024;
/// Longest instructions of a server, in bytes.
const WHOLE_MAX: usize = 16 * 1024;
const CUT: &str = "\n[truncated]";

type Known = (UpstreamId, Arc<Profile>);

/// Answers with the view of the addressed server.
pub(crate) async fn view(router: &Router, call: &Call) -> Events {
    let (plan, era) = (&call.plan, call.revision.era());
    let shown: &[UpstreamId] = if allow::sees_anything(plan) {
        plan.upstreams()
    } else {
        &[]
    };
    let probes = shown
        .iter()
        .map(|up| router.catalog.profile(&plan.tenant, up, era, PROBE_WAIT));
    let profiles = join_all(probes).await;
    let known: Vec<Known> = shown
        .iter()
        .zip(profiles)
        .filter_map(|(up, profile)| Some((up.clone(), profile.ok()?)))
        .collect();
    let complete = known.len() == shown.len();
    Events::ready(Final::View(Box::new(merge(plan, &known, complete))))
}

fn merge(plan: &ServerPlan, known: &[Known], complete: bool) -> ServerView {
    let any = |offers: &dyn Fn(&Profile) -> bool| known.iter().any(|(_, profile)| offers(profile));
    ServerView {
        tools: any(&|p| p.offers("tools")),
        prompts: any(&|p| p.offers("prompts")),
        resources: any(&|p| p.offers("resources")),
        subscribe: any(&subscribes),
        completions: any(&completes),
        logging: any(&|p| p.offers("logging")),
        extensions: extensions(plan, known),
        instructions: instructions(plan, known),
        ttl_ms: if complete { TTL_MS } else { 0 },
        scope: CacheScope::Public,
    }
}

/// Whether resources can be subscribed to.
pub(crate) fn subscribes(profile: &Profile) -> bool {
    let resources = profile.capability("resources");
    resources.is_some_and(|value| json::member(&value, "subscribe") == Some(b"true"))
}

/// Whether arguments can be completed; the first revision has no way to say so (CAP-10).
pub(crate) fn completes(profile: &Profile) -> bool {
    profile.offers("completions")
        || (profile.revision == Revision::R2024_11_05
            && (profile.offers("prompts") || profile.offers("resources")))
}

/// MCP Apps, where one connection is one upstream (APP-04); nothing else is relayed (EXT-03).
fn extensions(plan: &ServerPlan, known: &[Known]) -> Vec<(String, Bytes)> {
    let ui = |(_, profile): &Known| {
        let extensions = profile.capability("extensions")?;
        let at = json::members(&extensions).find_last(UI_EXTENSION)?;
        let value = extensions.slice(at.range());
        (value.first() == Some(&b'{')).then(|| (UI_EXTENSION.to_owned(), value))
    };
    if plan.upstreams().len() > 1 {
        return Vec::new();
    }
    known.iter().filter_map(ui).collect()
}

fn instructions(plan: &ServerPlan, known: &[Known]) -> Option<String> {
    let mut parts: Vec<String> = plan
        .instructions
        .iter()
        .map(|text| text.to_string())
        .collect();
    for (upstream, profile) in known {
        let text = profile
            .instructions
            .as_deref()
            .map(clean)
            .unwrap_or_default();
        if text.trim().is_empty() {
            continue;
        }
        let text = cut(text, PART_MAX);
        parts.push(if plan.is_federated() {
            format!("## {upstream} (tools prefixed \"{upstream}{SEPARATOR}\")\n{text}")
        } else {
            text
        });
    }
    (!parts.is_empty()).then(|| cut(parts.join("\n\n"), WHOLE_MAX))
}

/// Without control characters but line breaks and tabs.
fn clean(text: &str) -> String {
    text.chars()
        .filter(|c| matches!(c, '\n' | '\t') || !c.is_control())
        .collect()
}

fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - CUT.len()));
        text.push_str(CUT);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{plan, profile_with, transparent};

    fn known(id: &str, capabilities: &'static str, instructions: Option<&str>) -> Known {
        let profile = profile_with(Revision::R2025_11_25, capabilities, instructions);
        (UpstreamId::new(id).unwrap(), profile)
    }

    /// XT-340, CAP-08: a union on the server side, never an intersection.
    #[test]
    fn xt_340_capabilities_are_a_union() {
        let known = [
            known("a", r#"{"tools":{},"logging":{}}"#, None),
            known(
                "b",
                r#"{"resources":{"subscribe":true},"completions":{},"prompts":true}"#,
                None,
            ),
        ];
        let view = merge(&plan(&["a", "b"]), &known, true);
        assert!(view.tools && view.resources && view.subscribe);
        assert!(view.completions && view.logging && !view.prompts);
        assert_eq!(view.ttl_ms, 60_000);
        assert_eq!(merge(&plan(&["a", "b"]), &known, false).ttl_ms, 0);
    }

    /// XT-346, case 36: order, heading, control characters and caps; transparent: text only.
    #[test]
    fn xt_346_instructions_are_merged() {
        let known = [
            known("a", "{}", Some("use \u{7}A\nwell")),
            known("b", "{}", Some("  ")),
            known("c", "{}", Some(&"ü".repeat(5000))),
        ];
        let mut federated = plan(&["a", "b", "c"]);
        federated.instructions = Some(Arc::from("first"));
        let text = merge(&federated, &known, true).instructions.unwrap();
        assert!(text.starts_with("first\n\n## a (tools prefixed \"a__\")\nuse A\nwell\n\n## c"));
        assert!(text.ends_with(CUT) && text.len() < 5 * 1024);
        let text = merge(&transparent("a"), &known[..1], true)
            .instructions
            .unwrap();
        assert_eq!(text, "use A\nwell");
        assert_eq!(merge(&plan(&[]), &[], true).instructions, None);
    }

    /// APP-04, EXT-03: apps are offered where one connection is one upstream; the rest never.
    #[test]
    fn app_04_ui_is_offered_by_servers_of_one_upstream() {
        let caps = r#"{"extensions":{"io.modelcontextprotocol/ui":{"a":1},"x/y":{}}}"#;
        let one = merge(&transparent("a"), &[known("a", caps, None)], true).extensions;
        assert_eq!(
            one,
            [(UI_EXTENSION.to_owned(), Bytes::from_static(b"{\"a\":1}"))]
        );
        let both = [known("a", caps, None), known("b", caps, None)];
        assert!(merge(&plan(&["a", "b"]), &both, true).extensions.is_empty());
    }
}
