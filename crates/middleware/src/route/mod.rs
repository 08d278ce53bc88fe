//! Path → plan. Routes on the exact bytes of the path: nothing is decoded, normalised or redirected
//! (T27, case 137), so an address has two spellings at most, with and without the slash at its end.
//!
//! An address at which nothing stands gets no plan; the origin stage refuses it after its own check.

mod rule;

use arc_swap::ArcSwap;
use http::Request;
use std::sync::Arc;
use vestibule_frame::body::FrameBody;
use vestibule_terms::Reject;

use crate::facts;
use crate::gate::{Gate, GateLayer};
use crate::plans::{Plans, SharedPlans};

pub use rule::{Address, address};

/// Finds the plan of the addressed server.
#[derive(Debug, Clone)]
pub struct Route {
    plans: Arc<ArcSwap<Plans>>,
}

/// Inserts `Arc<ServerPlan>` and the tenant's `Arc<Budgets>`, or nothing.
pub type RouteLayer = GateLayer<Route>;

impl RouteLayer {
    /// Routes by the newest of `plans`.
    pub fn new(plans: SharedPlans) -> Self {
        GateLayer(Route { plans })
    }
}

impl Gate for Route {
    const STAGE: &'static str = "route";

    fn admit(&self, request: &mut Request<FrameBody>) -> Result<(), Reject> {
        let plans = self.plans.load();
        let found = address(request.uri().path())
            .and_then(|address| plans.find(address.tenant, address.server))
            .cloned();
        if let Some(found) = found {
            let record = facts::record(request.extensions());
            record.set_tenant(found.plan.tenant.clone());
            record.set_server(found.plan.server.clone());
            request.extensions_mut().insert(found.plan);
            request.extensions_mut().insert(found.budgets);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vestibule_terms::ServerPlan;

    use super::*;
    use crate::plans::{Budget, Budgets, Rate};
    use crate::testing::{plan, request, through};

    fn layer() -> RouteLayer {
        let budget = Budget {
            rate: Rate {
                count: 1,
                per: Duration::from_secs(1),
            },
            burst: 1,
            in_flight: 1,
            streams: 1,
        };
        let budgets = Budgets {
            tenant: budget,
            principal: budget,
        };
        let default = vec![plan("default", "default")];
        let acme = vec![plan("acme", "default"), plan("acme", "readonly")];
        RouteLayer::new(Plans::new([(default, budgets), (acme, budgets)]).shared())
    }

    /// HTR-01: the three forms of the one address, with and without the slash at the end.
    #[tokio::test]
    async fn htr_01_addresses_find_their_plans() {
        for (path, tenant, server) in [
            ("/mcp", "default", "default"),
            ("/mcp/", "default", "default"),
            ("/mcp?x=1", "default", "default"),
            ("/mcp/acme", "acme", "default"),
            ("/mcp/acme/", "acme", "default"),
            ("/mcp/acme/readonly", "acme", "readonly"),
            ("/mcp/acme/readonly/", "acme", "readonly"),
        ] {
            let outcome = through(&layer(), request("POST", path, &[])).await;
            assert_eq!(outcome.status(), 200, "never a redirect");
            let plan = outcome.seen.fact::<Arc<ServerPlan>>().unwrap();
            assert_eq!(plan.tenant.as_str(), tenant, "{path}");
            assert_eq!(plan.server.as_str(), server, "{path}");
            assert_eq!(outcome.record.tenant(), Some(&plan.tenant));
            assert_eq!(outcome.record.server(), Some(&plan.server));
            assert!(outcome.seen.fact::<Arc<Budgets>>().is_some());
        }
    }

    /// T27, case 137: what is not one of these bytes for bytes is nowhere.
    #[tokio::test]
    async fn t27_case_137_other_spellings_have_no_plan() {
        for path in [
            "/",
            "//mcp",
            "/mcp//",
            "/mcp//acme",
            "/mcp/acme//",
            "/MCP",
            "/mcp/Acme",
            "/%6dcp",
            "/mcp/ac%6de",
            "/mcp%2facme",
            "/mcp;x",
            "/mcp/acme;x",
            "/mcp/../mcp",
            "/mcp/./acme",
            "/mcp/acme/../acme",
            "/mcp/acme/readonly/x",
            "/mcp/gone",
            "/mcp/acme/gone",
            "/mcpx",
            "/admin/v1/tenants",
            "/metrics",
        ] {
            let outcome = through(&layer(), request("POST", path, &[])).await;
            assert!(outcome.seen.fact::<Arc<ServerPlan>>().is_none(), "{path}");
            assert_eq!(outcome.record.tenant(), None, "{path}");
        }
    }
}
