//! Budgets counted in this process.

use std::future::{Ready, ready};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;
use vestibule_terms::principal::Proof;
use vestibule_terms::reject::Scope;
use vestibule_terms::{Principal, TenantId};

use super::{Over, Permit, Quotas, Use};
use crate::gcra::Gcra;
use crate::plans::{Budget, Budgets};

/// When to come back for a place that somebody else holds: nobody knows, so soon.
const WHEN_HELD: Duration = Duration::from_secs(1);
/// Idle counters are forgotten when a table has grown to this size, and at each doubling.
const SWEEP_AT: usize = 10_000;

/// Counters of every tenant and caller, made when they first appear.
///
/// Callers come from validated credentials, so nobody can fill the table from outside; idle ones are
/// forgotten. In a tenant that is open to everyone callers cannot be told apart: there only the
/// tenant's budget holds.
#[derive(Debug, Clone)]
pub struct LocalQuotas(Arc<Tables>);

#[derive(Debug)]
struct Tables {
    start: Instant,
    tenants: Table<TenantId>,
    principals: Table<(TenantId, String)>,
}

#[derive(Debug)]
struct Table<K: Eq + Hash> {
    counters: DashMap<K, Arc<Counter>>,
    sweep_at: AtomicU64,
}

/// What one tenant or caller uses now.
#[derive(Debug, Default)]
struct Counter {
    /// Theoretical arrival of the next request, in nanoseconds since the start.
    arrival: AtomicU64,
    in_flight: AtomicU32,
    streams: AtomicU32,
}

/// A place in a counter, given back when dropped.
struct Place {
    counter: Arc<Counter>,
    wanted: Use,
}

impl Default for LocalQuotas {
    fn default() -> Self {
        Self(Arc::new(Tables {
            start: Instant::now(),
            tenants: Table::default(),
            principals: Table::default(),
        }))
    }
}

impl<K: Eq + Hash> Default for Table<K> {
    fn default() -> Self {
        Self {
            counters: DashMap::new(),
            sweep_at: AtomicU64::new(SWEEP_AT as u64),
        }
    }
}

// === impl Counter ===

impl Counter {
    fn gauge(&self, wanted: Use) -> Option<&AtomicU32> {
        match wanted {
            Use::Call => Some(&self.in_flight),
            Use::Stream => Some(&self.streams),
            Use::Other => None,
        }
    }

    /// Takes a place and one of the rate, or says which of them is not to be had.
    fn take(
        self: &Arc<Self>,
        budget: &Budget,
        wanted: Use,
        now: u64,
    ) -> Result<Place, (&'static str, Duration)> {
        let (limit, most) = match wanted {
            Use::Call => ("in_flight", budget.in_flight),
            Use::Stream => ("streams", budget.streams),
            Use::Other => ("rate", u32::MAX),
        };
        if let Some(gauge) = self.gauge(wanted) {
            let one_more = |held: u32| (held < most).then(|| held + 1);
            let taken = gauge.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
            taken.map_err(|_held| (limit, WHEN_HELD))?;
        }
        // From here on dropping the place gives it back.
        let place = Place {
            counter: Arc::clone(self),
            wanted,
        };
        self.take_rate(budget, now).map_err(|wait| ("rate", wait))?;
        Ok(place)
    }

    fn take_rate(&self, budget: &Budget, now: u64) -> Result<(), Duration> {
        let gcra = Gcra::new(budget.rate, budget.burst).ok_or(budget.rate.per)?;
        let mut arrival = self.arrival.load(Ordering::Acquire);
        loop {
            let next = gcra.take(arrival, now)?;
            let swapped = self.arrival.compare_exchange_weak(
                arrival,
                next,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match swapped {
                Ok(_) => return Ok(()),
                Err(newer) => arrival = newer,
            }
        }
    }

    fn is_idle(&self, now: u64) -> bool {
        self.arrival.load(Ordering::Acquire) <= now
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(gauge) = self.counter.gauge(self.wanted) {
            gauge.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

// === impl Table ===

impl<K: Eq + Hash> Table<K> {
    fn counter(&self, key: K, now: u64) -> Arc<Counter> {
        let counter = Arc::clone(&self.counters.entry(key).or_default());
        let len = self.counters.len() as u64;
        if len > self.sweep_at.load(Ordering::Relaxed) {
            // A counter that anybody still holds is in use, whatever it counts.
            self.counters
                .retain(|_, counter| Arc::strong_count(counter) > 1 || !counter.is_idle(now));
            let left = self.counters.len() as u64;
            let next = (left * 2).max(SWEEP_AT as u64);
            self.sweep_at.store(next, Ordering::Relaxed);
        }
        counter
    }
}

// === impl LocalQuotas ===

impl LocalQuotas {
    fn try_admit(
        &self,
        budgets: &Budgets,
        principal: &Principal,
        wanted: Use,
    ) -> Result<Permit, Over> {
        let tables = &self.0;
        let now = u64::try_from(tables.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let over = |scope| {
            move |(limit, retry_after)| Over {
                scope,
                limit,
                retry_after,
            }
        };
        let tenant = &principal.tenant;
        let own = match principal.proof {
            Proof::None => None,
            Proof::Key | Proof::OAuth => {
                let key = (tenant.clone(), principal.binding());
                let counter = tables.principals.counter(key, now);
                let taken = counter.take(&budgets.principal, wanted, now);
                Some(taken.map_err(over(Scope::Principal))?)
            }
        };
        let counter = tables.tenants.counter(tenant.clone(), now);
        let taken = counter.take(&budgets.tenant, wanted, now);
        let shared = taken.map_err(over(Scope::Tenant))?;
        Ok(Arc::new((own, shared)))
    }
}

impl Quotas for LocalQuotas {
    fn admit(
        &self,
        budgets: &Budgets,
        principal: &Principal,
        wanted: Use,
    ) -> impl Future<Output = Result<Permit, Over>> + Send + 'static {
        let verdict: Ready<Result<Permit, Over>> =
            ready(self.try_admit(budgets, principal, wanted));
        verdict
    }

    fn admit_now(
        &self,
        budgets: &Budgets,
        principal: &Principal,
        wanted: Use,
    ) -> Option<Result<Permit, Over>> {
        Some(self.try_admit(budgets, principal, wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plans::Rate;

    fn budget(count: u32, in_flight: u32) -> Budget {
        Budget {
            rate: Rate {
                count,
                per: Duration::from_secs(1),
            },
            burst: count,
            in_flight,
            streams: 1,
        }
    }

    fn caller(tenant: &str, subject: &str) -> Principal {
        Principal {
            subject: Arc::from(subject),
            proof: Proof::Key,
            ..Principal::anonymous(TenantId::new(tenant).unwrap())
        }
    }

    fn admit(quotas: &LocalQuotas, budgets: &Budgets, who: &Principal) -> Result<Permit, Over> {
        quotas.try_admit(budgets, who, Use::Call)
    }

    /// Case 76: budgets of two tenants, and of two callers of one, are apart; the tenant's holds for
    /// all its callers together.
    #[tokio::test(start_paused = true)]
    async fn case_76_budgets_are_neither_merged_nor_multiplied() {
        let quotas = LocalQuotas::default();
        let budgets = Budgets {
            tenant: budget(3, 100),
            principal: budget(2, 100),
        };
        let scope = |who: &Principal| admit(&quotas, &budgets, who).err().map(|over| over.scope);
        let (ann, bob) = (caller("acme", "ann"), caller("acme", "bob"));
        assert_eq!(scope(&ann), None);
        assert_eq!(scope(&ann), None);
        assert_eq!(scope(&ann), Some(Scope::Principal));
        assert_eq!(scope(&bob), None);
        assert_eq!(scope(&bob), Some(Scope::Tenant));
        assert_eq!(scope(&caller("beta", "ann")), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(scope(&ann), None);
    }

    /// A refusal by the tenant gives the caller's place back.
    #[tokio::test(start_paused = true)]
    async fn a_refusal_holds_no_place() {
        let quotas = LocalQuotas::default();
        let budgets = Budgets {
            tenant: budget(100, 1),
            principal: budget(100, 1),
        };
        let (ann, bob) = (caller("acme", "ann"), caller("acme", "bob"));
        let held = admit(&quotas, &budgets, &ann).unwrap();
        let over = admit(&quotas, &budgets, &bob).err().unwrap();
        assert_eq!((over.scope, over.limit), (Scope::Tenant, "in_flight"));
        drop(held);
        assert!(admit(&quotas, &budgets, &bob).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn open_tenants_have_only_the_tenants_budget() {
        let quotas = LocalQuotas::default();
        let budgets = Budgets {
            tenant: budget(5, 100),
            principal: budget(1, 1),
        };
        let anonymous = Principal::anonymous(TenantId::new("open").unwrap());
        for _ in 0..5 {
            assert!(admit(&quotas, &budgets, &anonymous).is_ok());
        }
        assert!(admit(&quotas, &budgets, &anonymous).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_callers_are_forgotten() {
        let quotas = LocalQuotas::default();
        let budgets = Budgets {
            tenant: budget(u32::MAX, u32::MAX),
            principal: budget(10, 10),
        };
        let kept = caller("acme", "kept");
        let held = admit(&quotas, &budgets, &kept).unwrap();
        for number in 0..SWEEP_AT {
            let who = caller("acme", &number.to_string());
            drop(admit(&quotas, &budgets, &who));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let left = quotas.0.principals.counters.len();
        assert!(left < SWEEP_AT / 10, "{left}");
        let key = (kept.tenant.clone(), kept.binding());
        assert!(quotas.0.principals.counters.contains_key(&key));
        drop(held);
    }
}
