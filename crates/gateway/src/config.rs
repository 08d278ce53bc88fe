//! From the checked configuration to the snapshots that rooms read.
//!
//! Each function is pure: the same configuration gives the same snapshot, so that a reload is
//! "build all, then swap all" and nothing in between is seen half.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use vestibule_auth::{Access, ApiKey, KeyHash, Keys};
use vestibule_egress::{Policy, Rules};
use vestibule_middleware::address::AddressLimit;
use vestibule_middleware::plans::{Budget, Budgets, Plans, Rate};
use vestibule_middleware::proxies::{Proxies, ProxyHeader};
use vestibule_registry::checked::{
    self, Checked, Credential, Destination, Reach, Sealing, TenantAuth, TenantChecked,
    UpstreamChecked,
};
use vestibule_store::{Fsync, Keyring};
use vestibule_terms::Secret;
use vestibule_upstream::{EraChoice, Target, Targets, Timeouts};

/// The keyring of `sealing.keys`, if there are any.
pub fn keyring(sealing: &Sealing) -> anyhow::Result<Option<Keyring>> {
    if sealing.keys.is_empty() {
        return Ok(None);
    }
    let keys = sealing
        .keys
        .iter()
        .map(|key| (key.id.clone(), Secret::new(key.secret.expose().to_vec())))
        .collect();
    Keyring::new(keys).context("sealing.keys").map(Some)
}

/// When the disk is forced to keep what it was given.
pub fn fsync(fsync: checked::Fsync) -> Fsync {
    match fsync {
        checked::Fsync::Always => Fsync::Always,
        checked::Fsync::Interval => Fsync::Interval,
        checked::Fsync::Never => Fsync::Never,
    }
}

/// What each tenant accepts as a credential.
pub fn keys(checked: &Checked) -> Keys {
    Keys::new(
        checked
            .tenants
            .iter()
            .map(|tenant| (tenant.id.clone(), access(tenant))),
    )
}

fn access(tenant: &TenantChecked) -> Access {
    match tenant.auth {
        TenantAuth::None => Access::Open,
        TenantAuth::Keys => {
            Access::Keys(tenant.keys.iter().map(api_key).collect::<HashMap<_, _>>())
        }
    }
}

fn api_key(key: &checked::ApiKey) -> (Box<str>, ApiKey) {
    let hash = match &key.credential {
        Credential::Key(whole) => KeyHash::of(whole.expose()),
        Credential::Sha256(hash) => KeyHash::from_sha256(*hash),
    };
    let record = ApiKey {
        hash,
        previous: key
            .previous
            .map(|(hash, until)| (KeyHash::from_sha256(hash), until)),
        expires: key.expires,
        subject: Arc::from(key.subject.as_str()),
        groups: key.groups.clone().into(),
        scopes: key.scopes.clone().into(),
        servers: key.servers.clone().into(),
    };
    (key.id.as_str().into(), record)
}

/// Where the gateway may connect to: the operator's rules, and the loopback addresses that his own
/// file names literally.
pub fn egress_policy(checked: &Checked) -> anyhow::Result<Policy> {
    let rules = Rules {
        private: destinations(&checked.egress.private),
        http: destinations(&checked.egress.http),
        deny: destinations(&checked.egress.deny),
    };
    let loopback = upstreams(checked).filter_map(|reach| match reach {
        Reach::Http {
            url,
            loopback: true,
            ..
        } => Policy::literal_loopback(url),
        Reach::Http { .. } | Reach::Command { .. } => None,
    });
    Ok(Policy::new(&rules)
        .context("egress")?
        .allow_literal_loopback(loopback))
}

fn destinations(destinations: &[Destination]) -> Vec<String> {
    destinations
        .iter()
        .map(|destination| match destination {
            Destination::Network(network) => network.to_string(),
            Destination::Name(name) => name.clone(),
        })
        .collect()
}

fn upstreams(checked: &Checked) -> impl Iterator<Item = &Reach> {
    checked
        .tenants
        .iter()
        .flat_map(|tenant| tenant.upstreams.iter())
        .map(|up| &up.reach)
}

/// What is served, with the budgets of each tenant.
pub fn plans(checked: &Checked) -> Plans {
    Plans::new(checked.tenants.iter().map(|tenant| {
        let budgets = Budgets {
            tenant: budget(&tenant.limits.tenant),
            principal: budget(&tenant.limits.principal),
        };
        (tenant.servers.clone(), budgets)
    }))
}

fn budget(budget: &checked::Budget) -> Budget {
    Budget {
        rate: rate(budget.rate),
        burst: budget.burst,
        in_flight: budget.in_flight,
        streams: budget.streams,
    }
}

fn rate(rate: checked::Rate) -> Rate {
    Rate {
        count: rate.count,
        per: rate.per,
    }
}

/// How the client's address is found.
pub fn proxies(checked: &Checked) -> Proxies {
    let proxies = &checked.listen.proxies;
    Proxies {
        trusted: proxies.trusted.clone(),
        header: match proxies.header {
            checked::ProxyHeader::XForwardedFor => ProxyHeader::XForwardedFor,
            checked::ProxyHeader::Forwarded => ProxyHeader::Forwarded,
        },
    }
}

/// What one client address may ask before authentication.
pub fn address_limit(checked: &Checked) -> Option<AddressLimit> {
    let limits = checked.limits.address?;
    Some(AddressLimit {
        rate: rate(limits.rate),
        burst: limits.burst,
    })
}

/// How every upstream of every tenant is reached.
pub fn targets(checked: &Checked) -> anyhow::Result<Targets> {
    let targets = checked.tenants.iter().flat_map(|tenant| {
        tenant
            .upstreams
            .iter()
            .map(|upstream| (tenant.id.clone(), target(upstream)))
    });
    Ok(Targets::new(targets)?)
}

fn target(upstream: &UpstreamChecked) -> Target {
    let (reach, headers) = match &upstream.reach {
        Reach::Http { url, headers, .. } => (
            vestibule_upstream::Reach::Http { url: url.clone() },
            headers.clone(),
        ),
        Reach::Command { command, env, cwd } => {
            let stdio = vestibule_upstream::Reach::Stdio {
                command: command.clone(),
                env: env.clone(),
                cwd: Some(cwd.clone()),
            };
            (stdio, Vec::new())
        }
    };
    Target {
        era: match upstream.era {
            checked::EraChoice::Auto => EraChoice::Auto,
            checked::EraChoice::Modern => EraChoice::Modern,
            checked::EraChoice::Legacy => EraChoice::Legacy,
        },
        headers,
        timeouts: Timeouts {
            connect: upstream.timeouts.connect,
            idle: upstream.timeouts.idle,
            total: upstream.timeouts.total,
        },
        max_response: upstream.max_response,
        max_sessions: usize::try_from(upstream.max_sessions).unwrap_or(usize::MAX),
        ..Target::new(upstream.id.clone(), reach)
    }
}
