//! The virtual servers of a tenant, as plans.

use std::sync::Arc;

use vestibule_terms::plan::{AllowLists, Origins, ServerKind, ServerPlan, Visibility};
use vestibule_terms::{Revision, ServerId, TenantId, UpstreamId};

use super::tenant::id;
use super::{Item, Reader, Section};
use crate::checked::UpstreamChecked;
use crate::object;
use crate::scalar;

/// The revisions this version serves to clients.
const SERVED: [Revision; 5] = [
    Revision::R2024_11_05,
    Revision::R2025_03_26,
    Revision::R2025_06_18,
    Revision::R2025_11_25,
    Revision::R2026_07_28,
];
const DEFAULT_SERVER: &str = "default";

/// What every server takes from its tenant.
pub(crate) struct Context<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) origins: &'a Origins,
    pub(crate) visibility: Visibility,
    pub(crate) http_sse: bool,
    pub(crate) upstreams: &'a [UpstreamChecked],
}

impl Context<'_> {
    fn all(&self) -> Vec<UpstreamId> {
        let ids = self.upstreams.iter().map(|upstream| upstream.id.clone());
        ids.collect()
    }

    /// A plan with every default.
    fn plan(&self, server: ServerId, kind: ServerKind) -> ServerPlan {
        ServerPlan {
            revisions: SERVED.to_vec(),
            origins: self.origins.clone(),
            visibility: self.visibility,
            http_sse: self.http_sse,
            ..ServerPlan::new(self.tenant.clone(), server, kind)
        }
    }

    /// The clocks of a request are those of its most patient upstream; each upstream keeps its own
    /// within them.
    fn set_clocks(&self, plan: &mut ServerPlan) {
        let mine = self
            .upstreams
            .iter()
            .filter(|upstream| plan.upstreams().contains(&upstream.id));
        let clocks: Vec<_> = mine.map(|upstream| upstream.timeouts).collect();
        let idle = clocks.iter().map(|timeouts| timeouts.idle).max();
        let total = clocks.iter().map(|timeouts| timeouts.total).max();
        plan.call_idle = idle.unwrap_or(plan.call_idle);
        plan.call_total = total.unwrap_or(plan.call_total);
    }
}

/// Reads every server, ordered by id; `default` is added when it is not there.
pub(crate) fn servers(
    reader: &mut Reader<'_>,
    item: Option<Item<'_>>,
    context: &Context<'_>,
) -> Vec<ServerPlan> {
    let entries = reader.map(item);
    let mut plans = Vec::new();
    for (key, item) in entries {
        if let Some(id) = id(reader, key, &item.path, ServerId::new) {
            plans.push(server(reader, id, &item, context));
        }
    }
    let has_default = plans
        .iter()
        .any(|plan: &ServerPlan| plan.server.as_str() == DEFAULT_SERVER);
    if let (false, Ok(id)) = (has_default, ServerId::new(DEFAULT_SERVER)) {
        plans.push(context.plan(id, ServerKind::Federated(context.all())));
    }
    for plan in &mut plans {
        context.set_clocks(plan);
    }
    plans.sort_by(|a, b| a.server.cmp(&b.server));
    plans
}

fn server(
    reader: &mut Reader<'_>,
    id: ServerId,
    item: &Item<'_>,
    context: &Context<'_>,
) -> ServerPlan {
    let section = reader.section(item, object::SERVER);
    let mut plan = context.plan(id, kind(reader, &section, context));
    plan.revisions = revisions(reader, section.get("revisions"));
    plan.allow = AllowLists {
        tools: allow(reader, section.get("tools")),
        prompts: allow(reader, section.get("prompts")),
        resources: allow(reader, section.get("resources")),
    };
    plan.name_limit = reader.value_or(section.get("name_limit"), plan.name_limit, name_limit);
    plan.strict_fields = reader.value_or(
        section.get("strict_fields"),
        plan.strict_fields,
        scalar::boolean,
    );
    plan.stream_after = reader.value_or(
        section.get("stream_after"),
        plan.stream_after,
        scalar::duration_or_zero,
    );
    plan.poll_close = reader.value_or(section.get("poll_close"), plan.poll_close, scalar::boolean);
    let sessions = [("required", false), ("optional", true)];
    plan.sessions_optional = reader.choice(section.get("sessions"), false, &sessions, &[]);
    plan.instructions = section
        .get("instructions")
        .and_then(|item| reader.text(&item))
        .map(Arc::from);
    plan
}

fn kind(reader: &mut Reader<'_>, section: &Section<'_>, context: &Context<'_>) -> ServerKind {
    match (section.get("upstream"), section.get("upstreams")) {
        (Some(item), None) => match find(reader, &item, context) {
            Some(id) => ServerKind::Transparent(id),
            None => ServerKind::Federated(Vec::new()),
        },
        (None, Some(item)) => {
            let mut ids: Vec<UpstreamId> = Vec::new();
            for item in reader.list(Some(item)) {
                let Some(id) = find(reader, &item, context) else {
                    continue;
                };
                if ids.contains(&id) {
                    reader.mistake(item.node.at, &item.path, "this upstream stands here twice");
                }
                ids.push(id);
            }
            ids.sort_unstable();
            ServerKind::Federated(ids)
        }
        (None, None) => ServerKind::Federated(context.all()),
        (Some(item), Some(_)) => {
            let what = "only one of these may stand here";
            let one_of = ["upstream", "upstreams"];
            reader.mistake_of(item.node.at, &section.path, what, &one_of);
            ServerKind::Federated(Vec::new())
        }
    }
}

fn find(reader: &mut Reader<'_>, item: &Item<'_>, context: &Context<'_>) -> Option<UpstreamId> {
    let name = reader.text(item)?;
    let all = context.all();
    let found = all.iter().find(|id| id.as_str() == name).cloned();
    if found.is_none() {
        let names: Vec<&str> = all.iter().map(UpstreamId::as_str).collect();
        let what = format!("there is no upstream `{name}` in this tenant");
        reader.mistake_of(item.node.at, &item.path, what, &names);
    }
    found
}

fn revisions(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Vec<Revision> {
    let Some(item) = item else {
        return SERVED.to_vec();
    };
    let (at, path) = (item.node.at, item.path.clone());
    let choices = SERVED.map(|revision| (revision.as_str(), Some(revision)));
    let mut revisions: Vec<Revision> = Vec::new();
    for item in reader.list(Some(item)) {
        let chosen = reader.choice(Some(item.clone()), None, &choices, &[]);
        let Some(revision) = chosen else { continue };
        if revisions.contains(&revision) {
            reader.mistake(item.node.at, &item.path, "this revision stands here twice");
        }
        revisions.push(revision);
    }
    if revisions.is_empty() {
        let names = SERVED.map(Revision::as_str);
        reader.mistake_of(at, &path, "at least one revision must be served", &names);
        return SERVED.to_vec();
    }
    revisions.sort_unstable();
    revisions
}

fn allow(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Option<Vec<String>> {
    let section = reader.section(&item?, object::ALLOW);
    let glob = |text: &str| match text.len() {
        0 => Err("must not be empty".to_owned()),
        1..=512 => Ok(text.to_owned()),
        _ => Err("is longer than 512 bytes".to_owned()),
    };
    let item = section.get("allow")?;
    Some(reader.list_of(Some(item), glob))
}

fn name_limit(text: &str) -> Result<usize, String> {
    match usize::try_from(scalar::count(text)?) {
        Ok(limit @ 32..=128) => Ok(limit),
        Ok(_) | Err(_) => Err("is not between 32 and 128".to_owned()),
    }
}
