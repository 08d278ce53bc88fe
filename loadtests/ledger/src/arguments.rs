//! What was asked for.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Where the gateways keep their state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// One gateway with its own files.
    Embedded,
    /// Three gateways on one Redis.
    Redis,
    /// Three gateways on a primary with a replica, under three sentinels.
    Sentinel,
    /// Three gateways on a cluster of three.
    Cluster,
}

impl StoreKind {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Redis => "redis",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
        }
    }
}

/// Kills replicas and checks that nothing is lost or repeated.
#[derive(Debug, Clone, Parser)]
#[command(version, max_term_width = 100)]
pub struct Arguments {
    /// Where the gateways keep their state.
    #[arg(long, value_enum, default_value = "embedded")]
    pub store: StoreKind,
    /// How many kills.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub kills: u32,
    /// What decides kinds and times of all faults.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A short run, within 90 seconds.
    #[arg(long, conflicts_with = "kills")]
    pub quick: bool,
    /// Restarts every replica in good order so many times instead of killing: nothing may fail.
    #[arg(long, value_name = "N", conflicts_with_all = ["kills", "quick", "mutation"])]
    pub rolling: Option<u32>,
    /// Hits only the store: every owner lives, and so nothing at all may be lost.
    #[arg(long, conflicts_with_all = ["rolling", "mutation"])]
    pub store_only: bool,
    /// A seeded fault of a gateway built with the feature `mutations`; passes when it is caught.
    #[arg(long, value_name = "NAME")]
    pub mutation: Option<String>,
    /// The gateway's program; default: beside this one.
    #[arg(long, value_name = "FILE")]
    pub gateway: Option<PathBuf>,
    /// Keep logs, ledger and store of a good run, too.
    #[arg(long)]
    pub keep: bool,
}

/// Kills of a short run.
const QUICK: u32 = 10;
/// Events that a long run must deliver to prove something; a short one by its kills.
const EVENTS: u64 = 10_000;
const EVENTS_PER_KILL: u64 = 200;

impl Arguments {
    /// How many kills.
    #[must_use]
    pub fn kills(&self) -> u32 {
        if self.quick { QUICK } else { self.kills }
    }

    /// How long the last calls may take. Longer than it takes to be told that an owner is dead.
    #[must_use]
    pub fn last_words(&self) -> Duration {
        Duration::from_secs(if self.quick { 25 } else { 70 })
    }

    /// Events that must be delivered.
    #[must_use]
    pub fn least_events(&self) -> u64 {
        let kills = self.rolling.map_or(self.kills(), |rounds| rounds * 3);
        EVENTS.min(EVENTS_PER_KILL * u64::from(kills))
    }

    /// Share of the kills, in percent, that must hit enough open calls.
    #[must_use]
    pub fn least_share(&self) -> u64 {
        if self.quick { 80 } else { 90 }
    }
}
