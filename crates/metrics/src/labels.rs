//! Label values, bounded: each set admits its first values by name and everything later as one
//! overflow value (T70).
//!
//! A value becomes a small number once ([`Slot`]), so that the key of a series is a few integers
//! and counting a request neither formats nor allocates.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use vestibule_terms::FastHash;

/// Tenants that keep their name.
pub(crate) const MAX_TENANTS: usize = 500;
/// Servers that keep their name, over all tenants.
pub(crate) const MAX_SERVERS: usize = 4_000;
/// Upstreams that keep their name, over all tenants.
pub(crate) const MAX_UPSTREAMS: usize = 4_000;
/// Tools of one tenant that keep their name.
pub(crate) const MAX_TOOLS_PER_TENANT: usize = 200;
/// Tools of all tenants that keep their name.
pub(crate) const MAX_TOOLS: usize = 2_000;

/// A label value by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot(u16);

impl Slot {
    /// The value of something that was never known.
    pub(crate) const UNKNOWN: Slot = Slot(0);
    /// The value of everything beyond the bound.
    pub(crate) const OTHER: Slot = Slot(1);
}

/// A growing, bounded set of label values.
#[derive(Debug)]
pub(crate) struct Labels {
    slots: DashMap<Box<str>, Slot, FastHash>,
    texts: RwLock<Vec<Arc<str>>>,
    bound: usize,
}

impl Labels {
    /// At most `bound` values by name; `unknown` and `other` are the two others.
    pub(crate) fn new(bound: usize, unknown: &str, other: &str) -> Self {
        Self {
            slots: DashMap::default(),
            texts: RwLock::new(vec![Arc::from(unknown), Arc::from(other)]),
            bound: bound.min(usize::from(u16::MAX) - 2),
        }
    }

    /// The number of `text`, which is admitted when there is room.
    pub(crate) fn slot(&self, text: &str) -> Slot {
        if let Some(slot) = self.slots.get(text) {
            return *slot;
        }
        self.admit(text)
    }

    fn admit(&self, text: &str) -> Slot {
        let mut texts = self.texts.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = self.slots.get(text) {
            return *slot; // another thread was faster
        }
        let Ok(number) = u16::try_from(texts.len()) else {
            return Slot::OTHER;
        };
        if texts.len() >= self.bound + 2 {
            return Slot::OTHER;
        }
        texts.push(Arc::from(text));
        self.slots.insert(Box::from(text), Slot(number));
        Slot(number)
    }

    /// The text of a number this set gave out.
    pub(crate) fn text(&self, slot: Slot) -> Arc<str> {
        let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
        let known = texts.get(usize::from(slot.0)).or_else(|| texts.get(1));
        known.map_or_else(|| Arc::from(""), Arc::clone)
    }
}

/// Tool names: bounded a tenant and in all, first called first named.
#[derive(Debug)]
pub(crate) struct Tools {
    names: Labels,
    tenants: DashMap<Slot, Arc<TenantTools>, FastHash>,
}

#[derive(Debug, Default)]
struct TenantTools {
    named: DashMap<Box<str>, (), FastHash>,
    count: AtomicUsize,
}

impl Tools {
    pub(crate) fn new() -> Self {
        Self {
            names: Labels::new(MAX_TOOLS, "other", "other"),
            tenants: DashMap::default(),
        }
    }

    /// The number of a tool of `tenant`; `None` is a name that is not from a catalog.
    pub(crate) fn slot(&self, tenant: Slot, tool: Option<&str>) -> Slot {
        let Some(tool) = tool else { return Slot::OTHER };
        let tools = match self.tenants.get(&tenant) {
            Some(tools) => Arc::clone(tools.value()),
            None => Arc::clone(self.tenants.entry(tenant).or_default().value()),
        };
        if tools.admits(tool) {
            self.names.slot(tool)
        } else {
            Slot::OTHER
        }
    }

    pub(crate) fn text(&self, slot: Slot) -> Arc<str> {
        self.names.text(slot)
    }
}

impl TenantTools {
    fn admits(&self, tool: &str) -> bool {
        if self.named.contains_key(tool) {
            return true;
        }
        if self.count.load(Ordering::Relaxed) >= MAX_TOOLS_PER_TENANT {
            return false;
        }
        match self.named.entry(Box::from(tool)) {
            Entry::Occupied(_) => true,
            Entry::Vacant(vacant) => {
                let admitted = self.count.fetch_add(1, Ordering::Relaxed) < MAX_TOOLS_PER_TENANT;
                if admitted {
                    vacant.insert(());
                }
                admitted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T70: the first values keep their name, later ones share one.
    #[test]
    fn t70_values_beyond_the_bound_share_one_label() {
        let labels = Labels::new(2, "_unknown", "_other");
        let (a, b, c, d) = (
            labels.slot("a"),
            labels.slot("b"),
            labels.slot("c"),
            labels.slot("d"),
        );
        assert_eq!(labels.slot("a"), a);
        assert_ne!(a, b);
        assert_eq!((c, d), (Slot::OTHER, Slot::OTHER));
        assert_eq!(labels.text(a).as_ref(), "a");
        assert_eq!(labels.text(c).as_ref(), "_other");
        assert_eq!(labels.text(Slot::UNKNOWN).as_ref(), "_unknown");
    }

    /// T70: 200 tools a tenant, 2,000 in all.
    #[test]
    fn t70_tools_are_bounded_by_tenant_and_in_all() {
        let tools = Tools::new();
        let tenants = Labels::new(MAX_TENANTS, "_unknown", "_other");
        let named = |tenant: usize| {
            let tenant = tenants.slot(&format!("t{tenant}"));
            (0..300)
                .filter(|tool| {
                    let name = format!("{tenant:?}-{tool}");
                    tools.slot(tenant, Some(&name)) != Slot::OTHER
                })
                .count()
        };
        assert_eq!(named(0), 200);
        let all: usize = (1..12).map(named).sum();
        assert_eq!(all, 1_800);
        assert_eq!(tools.slot(Slot::UNKNOWN, None), Slot::OTHER);
        assert_eq!(tools.text(Slot::OTHER).as_ref(), "other");
    }
}
