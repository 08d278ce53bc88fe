//! What further messages of a batch are charged to, the budgets of the request they came in.

use std::sync::Arc;

use vestibule_metrics::Metrics;
use vestibule_middleware::plans::SharedPlans;
use vestibule_middleware::quota::{LocalQuotas, charge};
use vestibule_session::{Permit, Toll};
use vestibule_terms::Reject;

/// Charges against the budgets of the newest snapshot.
pub(crate) fn of(quotas: &LocalQuotas, plans: &SharedPlans, metrics: &Metrics) -> Toll {
    let (quotas, plans, metrics) = (quotas.clone(), Arc::clone(plans), metrics.clone());
    Arc::new(move |principal, plan| {
        let snapshot = plans.load();
        let found = snapshot.find(plan.tenant.as_str(), plan.server.as_str());
        let budgets = found.map(|found| Arc::clone(&found.budgets));
        let (quotas, metrics, principal) = (quotas.clone(), metrics.clone(), principal.clone());
        Box::pin(async move {
            // a server that a reload took away has no budgets left
            let budgets = budgets.ok_or(Reject::NoSuchPath)?;
            let permit = charge(&quotas, &metrics, &budgets, &principal).await?;
            Ok(Box::new(permit) as Permit)
        })
    })
}
