//! The catalog as the router asks it: pages, names, definitions, owners of raw URIs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use futures_util::future::join_all;
use tokio::time::Instant;
use vestibule_exchange::view::CacheScope;
use vestibule_exchange::{Arrival, Capabilities, Connector, Inlet, ListPage, Profile, RpcError};
use vestibule_store::Sealer;
use vestibule_terms::reject::code;
use vestibule_terms::{
    Clock, Era, Principal, Revision, ServerId, ServerPlan, TenantId, UpstreamId,
};

use crate::allow;
use crate::cache::{Cache, Found, Freshness, Listing};
use crate::cursor::{self, Cursor, Cursors, Owner, Position};
use crate::definition::Definition;
use crate::fetch::Enumeration;
use crate::kind::Kind;
use crate::merge::{Basis, Item, Merged};
use crate::name::SEPARATOR;
use crate::profiles::Profiles;
use crate::uri;
use crate::variants::Variants;

/// How long a call or a list waits to learn what an upstream is.
pub const PROBE_WAIT: Duration = Duration::from_secs(10);
/// How long names of the generation before still resolve.
const PREVIOUS: Duration = Duration::from_secs(10 * 60);

/// For whom something is looked up.
#[derive(Debug, Clone, Copy)]
pub struct Viewer<'a> {
    /// The server.
    pub plan: &'a ServerPlan,
    /// The caller.
    pub principal: &'a Principal,
    /// The revision the caller speaks.
    pub revision: Revision,
    /// What the caller declared it can do.
    pub capabilities: &'a Arc<Capabilities>,
}

type Audience = (Era, Arc<Capabilities>);

#[derive(Default)]
struct View {
    current: Option<Arc<Merged>>,
    previous: Option<(Arc<Merged>, Instant)>,
}

/// Lists, names and definitions of everything that is behind the gateway.
pub struct Catalog {
    connector: Arc<dyn Connector>,
    cursors: Cursors,
    cache: Arc<Cache>,
    profiles: Profiles,
    views: DashMap<(TenantId, ServerId, Kind), Variants<Audience, View>>,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").finish_non_exhaustive()
    }
}

/// What the upstreams of a server have of one kind.
struct Parts {
    lists: Vec<(UpstreamId, Arc<Listing>)>,
    failures: Vec<(UpstreamId, RpcError)>,
    /// Whether every upstream offers nothing of the kind.
    undeclared: bool,
    /// Whether every list is as fresh as its lifetime says.
    fresh: bool,
}

impl Catalog {
    /// A catalog over `connector`, whose cursors `sealer` seals.
    pub fn new(connector: Arc<dyn Connector>, sealer: Sealer, clock: Arc<dyn Clock>) -> Self {
        Self {
            profiles: Profiles::new(Arc::clone(&connector)),
            connector,
            cursors: Cursors::new(sealer, clock),
            cache: Arc::default(),
            views: DashMap::new(),
        }
    }

    /// Seals and opens the cursors of lists that are relayed page by page.
    pub fn cursors(&self) -> &Cursors {
        &self.cursors
    }

    /// What an upstream is for clients of `era`: known, or probed for `wait` at most, or what it
    /// last was.
    ///
    /// # Errors
    /// When nothing is known of it.
    pub async fn profile(
        &self,
        tenant: &TenantId,
        upstream: &UpstreamId,
        era: Era,
        wait: Duration,
    ) -> Result<Arc<Profile>, RpcError> {
        self.profiles.get(tenant, upstream, era, wait).await
    }

    /// The capabilities that an upstream is told of: the client's, where questions can be relayed;
    /// of a modern client none to a legacy upstream (CAP-06). MCP Apps reach one upstream's server
    /// only (APP-04).
    pub fn class(&self, viewer: Viewer<'_>, profile: &Profile) -> Arc<Capabilities> {
        if viewer.revision.is_modern() && !profile.revision.is_modern() {
            return Arc::default();
        }
        let masked = viewer.capabilities.masked(profile.revision);
        let shared = viewer.plan.upstreams().len() > 1;
        if masked == **viewer.capabilities && !(shared && masked.ui.is_some()) {
            return Arc::clone(viewer.capabilities);
        }
        let ui = masked.ui.clone().filter(|_| !shared);
        Arc::new(Capabilities { ui, ..masked })
    }

    /// One page of the merged list of a federated server.
    ///
    /// # Errors
    /// A bad cursor, or that no upstream could be asked: never an empty page then (case 23).
    pub async fn page(
        &self,
        viewer: Viewer<'_>,
        kind: Kind,
        cursor: Option<&str>,
    ) -> Result<ListPage, RpcError> {
        let owner = Owner {
            plan: viewer.plan,
            principal: viewer.principal,
            kind,
        };
        let opened = cursor
            .map(|text| self.cursors.open(owner, text))
            .transpose()?;
        if !allow::sees_anything(viewer.plan) {
            return Ok(page(
                kind,
                Vec::new(),
                None,
                Duration::ZERO,
                CacheScope::Private,
            ));
        }
        // Later pages continue what the first one showed, as long as names resolve by it.
        let freshness = if opened.is_some() {
            Freshness::Resolving
        } else {
            Freshness::Listed
        };
        let mut parts = self.parts(viewer, kind, freshness).await;
        if parts.undeclared {
            return Err(RpcError::new(code::METHOD_NOT_FOUND, "method not offered"));
        }
        if parts.lists.is_empty() && !parts.failures.is_empty() {
            return Err(parts.failures.swap_remove(0).1);
        }
        let (scope, after) = continued(opened, scope_of(&parts))?;
        let merged = self.merged(viewer, kind, &parts);
        let rest = merged.after(after.as_ref().map(|(key, up)| (key.as_str(), up.as_str())));
        let mut visible = rest
            .iter()
            .filter(|item| allow::permits(viewer.plan, kind, &item.exposed));
        let items: Vec<&Item> = visible.by_ref().take(kind.page_size()).collect();
        let next = items
            .last()
            .filter(|_| visible.next().is_some())
            .map(|last| {
                let position = Position::After {
                    key: last.exposed.to_string(),
                    upstream: last.upstream.to_string(),
                };
                self.cursors.seal(owner, &Cursor { scope, position })
            });
        let raw = items.iter().map(|item| item.raw.clone()).collect();
        Ok(page(kind, raw, next, lifetime(&parts), scope))
    }

    /// The item of that exposed name on a federated server.
    ///
    /// # Errors
    /// Unknown and not permitted read the same (TOL-07); a name of an upstream whose list cannot be
    /// had says that the upstream is unavailable (case 25).
    pub async fn resolve(
        &self,
        viewer: Viewer<'_>,
        kind: Kind,
        exposed: &str,
    ) -> Result<Item, RpcError> {
        let unknown = || RpcError::unknown(kind.noun());
        if !allow::permits(viewer.plan, kind, exposed) {
            return Err(unknown());
        }
        let parts = self.parts(viewer, kind, Freshness::Resolving).await;
        if let Some(item) = self.find(viewer, kind, &parts, exposed) {
            return Ok(item);
        }
        let parts = if parts.fresh {
            parts
        } else {
            self.parts(viewer, kind, Freshness::Listed).await
        };
        if let Some(item) = self.find(viewer, kind, &parts, exposed) {
            return Ok(item);
        }
        let theirs = |upstream: &UpstreamId| {
            exposed
                .strip_prefix(upstream.as_str())
                .is_some_and(|rest| rest.starts_with(SEPARATOR))
        };
        let failure = parts
            .failures
            .into_iter()
            .find(|(upstream, _)| theirs(upstream));
        Err(failure.map_or_else(unknown, |(_, error)| error))
    }

    /// The definition of an upstream's own item; none when it is not listed or the list cannot be
    /// had.
    pub async fn definition(
        &self,
        viewer: Viewer<'_>,
        upstream: &UpstreamId,
        kind: Kind,
        original: &str,
        freshness: Freshness,
    ) -> Option<Definition> {
        let found = self.list(viewer, upstream, kind, freshness).await.ok()??;
        found.listing.get(original).cloned()
    }

    /// The one upstream of a federated server that a raw or `http(s)` URI belongs to: the only one
    /// that lists it or has a template for it, else the only one that `gave` it to the caller, else
    /// the only one with resources (translation rules, section 12.2).
    ///
    /// # Errors
    /// Several lay claim to it, or nobody.
    pub async fn owner(
        &self,
        viewer: Viewer<'_>,
        raw: &str,
        gave: &[UpstreamId],
    ) -> Result<UpstreamId, RpcError> {
        let resources = self
            .parts(viewer, Kind::Resources, Freshness::Resolving)
            .await;
        let templates = self
            .parts(viewer, Kind::Templates, Freshness::Resolving)
            .await;
        let listing = resources
            .lists
            .iter()
            .filter(|(_, list)| list.get(raw).is_some());
        let matching = templates.lists.iter().filter(|(_, list)| {
            list.items
                .iter()
                .any(|item| uri::template_matches(&item.key, raw))
        });
        let claims: BTreeSet<&UpstreamId> = listing.chain(matching).map(|(up, _)| up).collect();
        let offering: BTreeSet<&UpstreamId> = resources
            .lists
            .iter()
            .map(|(upstream, _)| upstream)
            .chain(resources.failures.iter().map(|(upstream, _)| upstream))
            .collect();
        let given: BTreeSet<&UpstreamId> = gave
            .iter()
            .filter(|upstream| viewer.plan.upstreams().contains(upstream))
            .collect();
        let owners = if !claims.is_empty() {
            claims
        } else if given.len() == 1 {
            given
        } else {
            offering
        };
        let mut owners = owners.into_iter();
        match (owners.next(), owners.next()) {
            (Some(owner), None) => Ok(owner.clone()),
            (Some(_), Some(_)) => Err(RpcError::new(
                code::INVALID_PARAMS,
                "ambiguous resource URI",
            )),
            (None, _) => Err(RpcError::unknown(Kind::Resources.noun())),
        }
    }

    /// A list of that upstream changed.
    pub fn invalidate(&self, tenant: &TenantId, upstream: &UpstreamId, kind: Kind) {
        self.cache.invalidate(tenant, upstream, kind);
    }

    /// Forgets upstreams that `keep` does not know: after a change of the configuration.
    pub fn retain(&self, keep: impl Fn(&TenantId, &UpstreamId) -> bool) {
        self.cache.retain(&keep);
        self.profiles.retain(&keep);
        self.views.clear();
    }

    fn find(&self, viewer: Viewer<'_>, kind: Kind, parts: &Parts, exposed: &str) -> Option<Item> {
        if let Some(item) = self.merged(viewer, kind, parts).resolve(exposed) {
            return Some(item.clone());
        }
        let mut views = self.views.get_mut(&view_key(viewer, kind))?;
        let view = views.get_or_insert_with(&audience(viewer), View::default);
        let (previous, since) = view.previous.as_ref()?;
        let item = previous
            .resolve(exposed)
            .filter(|_| since.elapsed() < PREVIOUS)?;
        viewer
            .plan
            .upstreams()
            .contains(&item.upstream)
            .then(|| item.clone())
    }

    /// The merged list of these parts; made anew only when one of them changed.
    fn merged(&self, viewer: Viewer<'_>, kind: Kind, parts: &Parts) -> Arc<Merged> {
        let (key, audience) = (view_key(viewer, kind), audience(viewer));
        let basis = Basis::of(&parts.lists, viewer.plan.name_limit);
        let mut known = self.views.entry(key.clone()).or_default();
        if let Some(current) = &known.get_or_insert_with(&audience, View::default).current
            && current.basis == basis
        {
            return Arc::clone(current);
        }
        drop(known); // merging a long list must not hold up the others of this map
        let merged = Arc::new(Merged::new(kind, &parts.lists, viewer.plan.name_limit));
        let mut views = self.views.entry(key).or_default();
        let view = views.get_or_insert_with(&audience, View::default);
        let replaced = view.current.replace(Arc::clone(&merged));
        if let Some(replaced) = replaced.filter(|replaced| replaced.basis != basis) {
            view.previous = Some((replaced, Instant::now()));
        }
        merged
    }

    async fn parts(&self, viewer: Viewer<'_>, kind: Kind, freshness: Freshness) -> Parts {
        let upstreams = viewer.plan.upstreams();
        let asked = upstreams
            .iter()
            .map(|up| self.list(viewer, up, kind, freshness));
        let mut parts = Parts {
            lists: Vec::new(),
            failures: Vec::new(),
            undeclared: false,
            fresh: true,
        };
        let mut undeclared = 0;
        for (upstream, outcome) in upstreams.iter().zip(join_all(asked).await) {
            match outcome {
                Ok(None) => undeclared += 1,
                Ok(Some(found)) => {
                    parts.fresh &= found.fresh;
                    parts.lists.push((upstream.clone(), found.listing));
                }
                Err(error) => {
                    parts.fresh = false;
                    parts.failures.push((upstream.clone(), error));
                }
            }
        }
        parts.undeclared = !upstreams.is_empty() && undeclared == upstreams.len();
        parts
    }

    /// A list of one upstream; none when the upstream does not offer it.
    async fn list(
        &self,
        viewer: Viewer<'_>,
        upstream: &UpstreamId,
        kind: Kind,
        freshness: Freshness,
    ) -> Result<Option<Found>, RpcError> {
        let tenant = &viewer.plan.tenant;
        let era = viewer.revision.era();
        let profile = self.profile(tenant, upstream, era, PROBE_WAIT).await?;
        if !kind.offered_by(&profile) {
            return Ok(None);
        }
        let watch = ListWatch {
            tenant: tenant.clone(),
            cache: Arc::clone(&self.cache),
        };
        let enumeration = Enumeration {
            connector: Arc::clone(&self.connector),
            tenant: tenant.clone(),
            upstream: upstream.clone(),
            era,
            class: self.class(viewer, &profile),
            profile,
            kind,
            inlet: Arc::new(watch),
        };
        self.cache.get(enumeration, freshness).await.map(Some)
    }
}

fn view_key(viewer: Viewer<'_>, kind: Kind) -> (TenantId, ServerId, Kind) {
    (viewer.plan.tenant.clone(), viewer.plan.server.clone(), kind)
}

fn audience(viewer: Viewer<'_>) -> Audience {
    (viewer.revision.era(), Arc::clone(viewer.capabilities))
}

fn scope_of(parts: &Parts) -> CacheScope {
    let private = parts
        .lists
        .iter()
        .any(|(_, list)| list.scope == CacheScope::Private);
    if private {
        CacheScope::Private
    } else {
        CacheScope::Public
    }
}

/// The scope of this page and where it begins. All pages of a list have the scope of its first; when
/// the list has become private since, the cursor is refused (CCH-09).
fn continued(
    cursor: Option<Cursor>,
    scope: CacheScope,
) -> Result<(CacheScope, Option<(String, String)>), RpcError> {
    match cursor {
        None => Ok((scope, None)),
        Some(Cursor {
            scope: sealed,
            position: Position::After { key, upstream },
        }) if sealed == scope || sealed == CacheScope::Private => {
            Ok((sealed, Some((key, upstream))))
        }
        Some(_) => Err(cursor::invalid()),
    }
}

/// The shortest remaining lifetime; none when a list is old or missing.
fn lifetime(parts: &Parts) -> Duration {
    let shortest = parts.lists.iter().map(|(_, list)| list.remaining()).min();
    shortest.filter(|_| parts.fresh).unwrap_or(Duration::ZERO)
}

fn page(
    kind: Kind,
    items: Vec<bytes::Bytes>,
    next_cursor: Option<String>,
    ttl: Duration,
    scope: CacheScope,
) -> ListPage {
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    ListPage {
        member: kind.member(),
        items,
        next_cursor,
        ttl_ms,
        scope,
    }
}

/// What an upstream says on the catalog's own session: only changes of lists matter.
struct ListWatch {
    tenant: TenantId,
    cache: Arc<Cache>,
}

impl Inlet for ListWatch {
    fn arrive(&self, upstream: &UpstreamId, arrival: Arrival) {
        if let Arrival::ListChanged(method, _) = arrival {
            for kind in Kind::changed_by(method) {
                self.cache.invalidate(&self.tenant, upstream, *kind);
            }
        }
    }
}

#[cfg(test)]
mod tests;
