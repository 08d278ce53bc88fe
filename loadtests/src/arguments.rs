//! Arguments, and the rules they are checked by.
//!
//! Every number has an upper bound: this program shares the machine with what it measures.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::mcp::{self, Era, Messages, Shape};
use crate::plan::{Held, Model, Plan};
use crate::report::Thresholds;
use crate::target::Target;

/// Load for MCP over Streamable HTTP on loopback.
///
/// Prints a JSON result. Exits 0 when every threshold holds, 1 when one is broken, 2 when the
/// arguments are wrong.
#[derive(Debug, Parser)]
#[command(name = "vestibule-load", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    model: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Every connection calls again as soon as it was answered (throughput)
    Closed {
        #[command(flatten)]
        common: Common,
        /// Calls of all connections together
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
        requests: u64,
    },
    /// Calls fall due at a fixed rate; latency counts from when they were due
    Open {
        #[command(flatten)]
        common: Common,
        /// Calls a second
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        rate: u32,
        /// Seconds at the start that are not recorded
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=60))]
        warmup: u64,
    },
    /// Hold streams open and do nothing else
    Hold {
        #[command(flatten)]
        common: Common,
    },
    /// Cut SSE answers and continue them with Last-Event-ID (legacy era)
    Resume {
        #[command(flatten)]
        common: Common,
        /// Answers that are cut, of all connections together
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        rounds: u64,
        /// Events that are read before the cut
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        cut: u32,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// Endpoint, an http URL on a loopback address
    #[arg(long)]
    url: Target,
    /// Era of the client
    #[arg(long, value_enum, default_value_t = Era::Legacy)]
    era: Era,
    /// Revision that legacy sessions ask for
    #[arg(long, default_value = mcp::LEGACY)]
    revision: String,
    /// API key; better in the environment than among the arguments
    #[arg(long, env = "VESTIBULE_LOAD_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Connections, each with its own session
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    connections: u16,
    /// The longest the run may take; the open model and held streams take exactly this
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The longest one call may take, in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// Threads of the generator
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,
    #[command(flatten)]
    call: Call,
    /// GET streams held open meanwhile (legacy era)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=20_000))]
    held_get: u16,
    /// POST streams held open meanwhile
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=20_000))]
    held_post: u16,
    #[command(flatten)]
    thresholds: Limits,
}

#[derive(Debug, Args)]
struct Call {
    /// Tool that is called
    #[arg(long, default_value = "echo")]
    tool: String,
    /// Bytes of text in the arguments
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=4_194_304))]
    payload: u32,
    /// Bytes of text in the result; 0 echoes the argument
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16_777_216))]
    result_bytes: u32,
    /// Progress events before the result
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    events: u32,
    /// Microseconds before each of them
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=60_000_000))]
    gap_us: u64,
    /// Microseconds before the result
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=600_000_000))]
    delay_us: u64,
    /// Ask for an SSE answer even without events
    #[arg(long)]
    sse: bool,
}

#[derive(Debug, Args)]
struct Limits {
    /// Failed calls that are still good
    #[arg(long, default_value_t = 0)]
    max_failed: u64,
    /// Highest median latency, in microseconds
    #[arg(long)]
    max_p50_us: Option<f64>,
    /// Highest 99th percentile of latency, in microseconds
    #[arg(long)]
    max_p99_us: Option<f64>,
    /// Lowest rate of answers a second
    #[arg(long)]
    min_rate: Option<f64>,
    /// Highest 99th percentile of the generator's own lateness, in microseconds
    #[arg(long)]
    max_lateness_p99_us: Option<f64>,
}

/// Why arguments that can be read make no run.
#[derive(Debug, thiserror::Error)]
pub enum Mistake {
    /// A GET stream outside a session.
    #[error("GET streams and resume are of the legacy era")]
    NoStreams,
    /// `hold` without streams.
    #[error("hold needs --held-get or --held-post")]
    NothingHeld,
    /// Nothing would be left after the cut.
    #[error("--cut must be below --events, so that something is left to resume")]
    NothingLeft,
    /// No request would be recorded.
    #[error("--warmup must be below --seconds")]
    AllWarmup,
    /// What cannot be sent.
    #[error(transparent)]
    Unsendable(#[from] mcp::Unsendable),
}

// === impl Arguments ===

impl Arguments {
    /// Checks what the single values cannot say.
    ///
    /// # Errors
    /// Combinations that mean nothing.
    pub fn plan(self) -> Result<Plan, Mistake> {
        let (common, model) = match self.model {
            Command::Closed { common, requests } => (common, Model::Closed { requests }),
            Command::Open {
                common,
                rate,
                warmup,
            } => {
                if warmup >= common.seconds {
                    return Err(Mistake::AllWarmup);
                }
                let model = Model::Open {
                    rate: NonZeroU32::new(rate).unwrap_or(NonZeroU32::MIN),
                    requests: u64::from(rate) * common.seconds,
                    warmup: u64::from(rate) * warmup,
                };
                (common, model)
            }
            Command::Hold { common } => (common, Model::Hold),
            Command::Resume {
                common,
                rounds,
                cut,
            } => {
                let events = common.call.events;
                if cut >= events {
                    return Err(Mistake::NothingLeft);
                }
                (
                    common,
                    Model::Resume {
                        rounds,
                        cut,
                        events,
                    },
                )
            }
        };
        common.plan(model)
    }
}

// === impl Common ===

impl Common {
    fn plan(self, model: Model) -> Result<Plan, Mistake> {
        let held = Held {
            get: self.held_get.into(),
            post: self.held_post.into(),
        };
        let is_legacy_only = held.get > 0 || matches!(model, Model::Resume { .. });
        if is_legacy_only && self.era == Era::Modern {
            return Err(Mistake::NoStreams);
        }
        if model == Model::Hold && held == Held::default() {
            return Err(Mistake::NothingHeld);
        }
        let revision = match self.era {
            Era::Modern => mcp::MODERN,
            Era::Legacy => &self.revision,
        };
        let shape = self.call.shape();
        let holding = shape.holding(self.seconds);
        let key = self.api_key.as_deref();
        let compose = |shape: &Shape| {
            Messages::new(self.era, revision, shape, &self.url.host, key).map(Arc::new)
        };
        Ok(Plan {
            messages: compose(&shape)?,
            holding: compose(&holding)?,
            target: self.url,
            timeout: Duration::from_secs(self.timeout),
            seconds: Duration::from_secs(self.seconds),
            connections: self.connections.into(),
            held,
            model,
            thresholds: self.thresholds.checked(),
            threads: self.threads.into(),
        })
    }
}

impl Call {
    fn shape(&self) -> Shape {
        let bytes = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Shape {
            tool: self.tool.clone(),
            payload: bytes(self.payload),
            result_bytes: bytes(self.result_bytes),
            events: self.events,
            gap_us: self.gap_us,
            delay_us: self.delay_us,
            sse: self.sse,
        }
    }
}

impl Limits {
    fn checked(&self) -> Thresholds {
        Thresholds {
            max_failed: self.max_failed,
            max_p50_us: self.max_p50_us,
            max_p99_us: self.max_p99_us,
            min_rate: self.min_rate,
            max_lateness_p99_us: self.max_lateness_p99_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:9/mcp";

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("vestibule-load").chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        arguments.plan().map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn the_command_line_itself_is_well_formed() {
        use clap::CommandFactory as _;
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_a_bounded_closed_loop() {
        let plan = plan(&format!("closed --url {URL}")).unwrap();
        assert_eq!(plan.model, Model::Closed { requests: 10_000 });
        assert_eq!((plan.connections, plan.threads), (32, 1));
        assert_eq!(plan.seconds, Duration::from_secs(60));
        assert_eq!(plan.held, Held::default());
    }

    #[test]
    fn an_open_run_has_rate_times_seconds_requests() {
        let plan = plan(&format!(
            "open --url {URL} --rate 2000 --seconds 5 --warmup 1"
        ))
        .unwrap();
        let rate = NonZeroU32::new(2_000).unwrap();
        assert_eq!(
            plan.model,
            Model::Open {
                rate,
                requests: 10_000,
                warmup: 2_000
            }
        );
    }

    #[test]
    fn other_machines_are_refused() {
        let refused = plan("closed --url http://192.0.2.7:80/mcp").unwrap_err();
        assert!(refused.contains("loopback"), "{refused}");
        assert!(
            plan("closed --url https://127.0.0.1/")
                .unwrap_err()
                .contains("http://")
        );
    }

    #[test]
    fn every_number_has_a_bound() {
        for line in [
            "closed --requests 10000001",
            "closed --requests 0",
            "closed --connections 4097",
            "closed --connections 0",
            "closed --seconds 601",
            "closed --timeout 601",
            "closed --payload 4194305",
            "closed --result-bytes 16777217",
            "closed --events 100001",
            "open --rate 100001",
            "open --rate 0",
            "hold --held-post 20001",
            "resume --rounds 1000001 --events 5",
        ] {
            assert!(plan(&format!("{line} --url {URL}")).is_err(), "{line}");
        }
    }

    #[test]
    fn combinations_that_mean_nothing_are_refused() {
        for (line, why) in [
            ("hold", "--held-get"),
            ("hold --era modern --held-get 1", "legacy era"),
            ("resume --era modern --events 9", "legacy era"),
            ("resume --events 3 --cut 3", "below --events"),
            ("resume", "below --events"),
            ("open --seconds 5 --warmup 5", "below --seconds"),
        ] {
            let refused = plan(&format!("{line} --url {URL}")).unwrap_err();
            assert!(refused.contains(why), "{line}: {refused}");
        }
        assert!(plan(&format!("hold --era modern --held-post 1 --url {URL}")).is_ok());
        assert!(plan(&format!("resume --events 4 --cut 3 --url {URL}")).is_ok());
    }

    #[test]
    fn a_tool_name_that_no_header_can_carry_is_refused() {
        let words = [
            "vestibule-load",
            "closed",
            "--url",
            URL,
            "--era",
            "modern",
            "--tool",
            "a\nb",
        ];
        let refused = Arguments::try_parse_from(words)
            .unwrap()
            .plan()
            .unwrap_err();
        assert!(refused.to_string().contains("tool's name"));
    }
}
