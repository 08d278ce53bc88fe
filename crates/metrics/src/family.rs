//! One metric family with its children found by a small key, and a bound on how many there are.
//!
//! The library's own look-up by label text takes one lock for the whole family and hashes text;
//! here a child is found by integers in a sharded map, and the library is asked only when a
//! series is new.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use prometheus::IntCounter;
use prometheus::core::{MetricVec, MetricVecBuilder};
use vestibule_terms::FastHash;

/// Series of one family, a histogram's buckets counted one by one.
pub(crate) const MAX_FAMILY: usize = 5_000;
/// Series of all families.
pub(crate) const MAX_ALL: usize = 10_000;

/// What all families of one registry may hold together.
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicUsize);

impl Budget {
    fn take(used: &AtomicUsize, weight: usize, limit: usize) -> bool {
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            (now + weight <= limit).then_some(now + weight)
        })
        .is_ok()
    }
}

/// A family of the library: makes and removes children by label text.
pub(crate) trait Series {
    /// One child.
    type Child: Clone;

    fn child(&self, labels: &[&str]) -> Option<Self::Child>;
    fn remove(&self, labels: &[&str]) -> bool;
}

impl<B: MetricVecBuilder> Series for MetricVec<B> {
    type Child = B::M;

    fn child(&self, labels: &[&str]) -> Option<B::M> {
        self.get_metric_with_label_values(labels).ok()
    }

    fn remove(&self, labels: &[&str]) -> bool {
        self.remove_label_values(labels).is_ok()
    }
}

/// A family whose children are keyed by `K`.
pub(crate) struct Family<K, V: Series> {
    vec: V,
    children: DashMap<K, V::Child, FastHash>,
    used: AtomicUsize,
    weight: usize,
    budget: Arc<Budget>,
    dropped: IntCounter,
}

impl<K: Eq + Hash, V: Series> Family<K, V> {
    /// Wraps a registered family; each child exposes `weight` series, and what finds no room is
    /// counted in `dropped`.
    pub(crate) fn new(vec: V, weight: usize, budget: Arc<Budget>, dropped: IntCounter) -> Self {
        Self {
            vec,
            children: DashMap::default(),
            used: AtomicUsize::new(0),
            weight,
            budget,
            dropped,
        }
    }

    /// Runs `use_it` on the child of `key`, which is made with `labels` when it is new and there
    /// is room for it.
    pub(crate) fn with<const N: usize>(
        &self,
        key: K,
        labels: impl FnOnce() -> [Arc<str>; N],
        use_it: impl FnOnce(&V::Child),
    ) {
        if let Some(child) = self.children.get(&key) {
            return use_it(&child);
        }
        if self.is_full() {
            return self.dropped.inc();
        }
        match self.children.entry(key) {
            Entry::Occupied(child) => use_it(child.get()),
            Entry::Vacant(vacant) => match self.create(labels()) {
                Some(child) => use_it(&vacant.insert(child)),
                None => self.dropped.inc(),
            },
        }
    }

    /// Runs `see` on every child there is.
    pub(crate) fn each(&self, mut see: impl FnMut(&K, &V::Child)) {
        for child in &self.children {
            see(child.key(), child.value());
        }
    }

    /// Takes the child of `key` out, so that it is no longer exposed.
    pub(crate) fn remove<const N: usize>(&self, key: &K, labels: [Arc<str>; N]) {
        if self.children.remove(key).is_none() {
            return;
        }
        if self.vec.remove(&labels.each_ref().map(AsRef::as_ref)) {
            self.used.fetch_sub(self.weight, Ordering::Relaxed);
            self.budget.0.fetch_sub(self.weight, Ordering::Relaxed);
        }
    }

    fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) + self.weight > MAX_FAMILY
            || self.budget.0.load(Ordering::Relaxed) + self.weight > MAX_ALL
    }

    fn create<const N: usize>(&self, labels: [Arc<str>; N]) -> Option<V::Child> {
        if !Budget::take(&self.used, self.weight, MAX_FAMILY) {
            return None;
        }
        if !Budget::take(&self.budget.0, self.weight, MAX_ALL) {
            self.used.fetch_sub(self.weight, Ordering::Relaxed);
            return None;
        }
        self.vec.child(&labels.each_ref().map(AsRef::as_ref))
    }
}

impl<K, V: Series> fmt::Debug for Family<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family")
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}
