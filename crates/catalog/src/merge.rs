//! The merged list of a federated server: exposed, sorted, and the table that resolves names.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use vestibule_frame::agree::Annotated;
use vestibule_terms::UpstreamId;

use crate::cache::Listing;
use crate::kind::Kind;
use crate::{name, uri};

/// One item of a merged list.
#[derive(Debug, Clone)]
pub struct Item {
    /// The upstream that has it.
    pub upstream: UpstreamId,
    /// Its name, URI or template there.
    pub original: Arc<str>,
    /// The same on this server.
    pub exposed: Arc<str>,
    /// The object as it is listed here.
    pub raw: Bytes,
    /// The arguments that are mirrored in headers.
    pub annotated: Arc<[Annotated]>,
}

/// The lists that a merged list was made of, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Basis {
    parts: Vec<(UpstreamId, u64)>,
    limit: usize,
}

impl Basis {
    pub(crate) fn of(parts: &[(UpstreamId, Arc<Listing>)], limit: usize) -> Self {
        let parts = parts
            .iter()
            .map(|(id, listing)| (id.clone(), listing.generation))
            .collect();
        Self { parts, limit }
    }
}

/// A merged list, sorted by (exposed, upstream): the same on every replica, whatever the order in
/// which upstreams were configured or answered (TOL-05, case 31).
#[derive(Debug)]
pub struct Merged {
    pub(crate) basis: Basis,
    items: Vec<Item>,
    by_exposed: HashMap<Arc<str>, usize>,
}

impl Merged {
    pub(crate) fn new(kind: Kind, parts: &[(UpstreamId, Arc<Listing>)], limit: usize) -> Self {
        let pairs: Vec<_> = parts
            .iter()
            .flat_map(|(upstream, listing)| listing.items.iter().map(move |item| (upstream, item)))
            .collect();
        let exposed: Vec<String> = if kind.is_uri() {
            pairs
                .iter()
                .map(|(up, item)| uri::expose(up, &item.key).into_owned())
                .collect()
        } else {
            let keys: Vec<_> = pairs.iter().map(|(up, item)| (*up, &*item.key)).collect();
            name::assign(&keys, limit)
        };
        let item =
            |((upstream, definition), exposed): (&(&UpstreamId, &crate::Definition), String)| {
                Item {
                    upstream: (*upstream).clone(),
                    original: Arc::clone(&definition.key),
                    raw: definition.expose(kind, upstream, &exposed),
                    exposed: Arc::from(exposed),
                    annotated: Arc::clone(&definition.annotated),
                }
            };
        let mut items: Vec<Item> = pairs.iter().zip(exposed).map(item).collect();
        items.sort_unstable_by(|a, b| (&a.exposed, &a.upstream).cmp(&(&b.exposed, &b.upstream)));
        let by_exposed = items
            .iter()
            .map(|item| Arc::clone(&item.exposed))
            .zip(0..)
            .collect();
        Self {
            basis: Basis::of(parts, limit),
            items,
            by_exposed,
        }
    }

    /// The item of that exposed name: by table, never by splitting.
    pub fn resolve(&self, exposed: &str) -> Option<&Item> {
        self.items.get(*self.by_exposed.get(exposed)?)
    }

    /// The items behind a position, in order.
    pub fn after(&self, position: Option<(&str, &str)>) -> &[Item] {
        let start = position.map_or(0, |(key, upstream)| {
            self.items
                .partition_point(|item| (&*item.exposed, item.upstream.as_str()) <= (key, upstream))
        });
        self.items.get(start..).unwrap_or_default()
    }
}
