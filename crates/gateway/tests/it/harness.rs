//! A gateway in this process, on a free port, with a configuration as an operator writes it.

use std::net::SocketAddr;
use std::sync::Arc;

use vestibule::app::{Address, Addresses, App, Bound};
use vestibule::shutdown::Stop;
use vestibule_listener::Workers;
use vestibule_testkit::{RawClient, RawRequest, RawResponse};

/// A running gateway; dropping it stops it at once.
pub(crate) struct Gateway {
    pub(crate) app: Arc<App>,
    pub(crate) bound: Bound,
    pub(crate) stop: Stop,
}

impl Gateway {
    /// Serves the tenants of `yaml` (the text below `tenants:`, indented by two).
    pub(crate) fn start(tenants: &str) -> Self {
        Self::with("", tenants)
    }

    /// The same with more top-level keys before the tenants.
    pub(crate) fn with(top: &str, tenants: &str) -> Self {
        Self::on(Workers::start(2).unwrap(), top, tenants)
    }

    /// The same without workers: in the runtime of the test, whose clock the test can move.
    pub(crate) fn here(tenants: &str) -> Self {
        Self::on(Workers::default(), "", tenants)
    }

    fn on(workers: Workers, top: &str, tenants: &str) -> Self {
        let text = configuration(top, tenants);
        let checked = vestibule_registry::parse(&text, "test", &|_| None)
            .unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"));
        let app = Arc::new(App::build(&checked).unwrap());
        let stop = Stop::default();
        let addresses = Addresses {
            data: Address::plain(loopback()),
            admin: Address::plain(loopback()),
            telemetry: None,
        };
        let running = app.start(addresses, workers, &stop).unwrap();
        let bound = running.bound;
        tokio::spawn(running.finished());
        Self { app, bound, stop }
    }

    /// One request on a connection of its own, and its whole answer.
    pub(crate) async fn ask(&self, request: RawRequest) -> RawResponse {
        self.connect().await.ask(&request).await.unwrap()
    }

    /// A fresh connection.
    pub(crate) async fn connect(&self) -> RawClient {
        RawClient::connect(self.bound.data).await.unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.now();
    }
}

/// A configuration with memory only and the given tenants.
pub(crate) fn configuration(top: &str, tenants: &str) -> String {
    format!("store: {{ kind: embedded, path: none }}\n{top}\ntenants:\n{tenants}\n")
}

/// An open tenant `t` whose only upstream `up` is at `url`, federated as `default` and transparent
/// as `up`.
pub(crate) fn one_upstream(url: &str) -> String {
    format!(
        "  t:
    auth: none
    policy: allow_all
    upstreams:
      up: {{ url: \"{url}\" }}
    servers:
      default: {{ upstreams: [up] }}
      up: {{ upstream: up }}"
    )
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
