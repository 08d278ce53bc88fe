//! Kill any replica at any moment: sessions go on, streams resume, no event is lost or repeated.
//! This package proves it with real processes, or shows where it is not so.
//!
//! ```text
//! clients ──► fault proxy and balancer ──► gateways ──► ledger upstream (a line on disk, then the event)
//!                                             │
//!                                           store
//! ```
//!
//! The upstream writes every event to its ledger before it sends it; clients write down every message
//! they dispatch; at the end both are compared. Clients resume with the last id they dispatched, as
//! the protocol has it, and never repeat a request: that would hide what is looked for.
//!
//! | module | holds |
//! |---|---|
//! | `arguments`, `schedule`, `random` | what was asked for, and the blows that a seed decides |
//! | `history` | what each side wrote down |
//! | `verdict` | both compared: one pure function |
//! | `upstream` | the ledger upstream, a process of its own |
//! | `client` | sessions, calls, questions, GET streams, forgeries |
//! | `net` | the balancer and the faults of connections |
//! | `house` | the processes: gateways, upstream, store |
//! | `stage`, `run`, `rolling` | a run from the first process to the verdict |
//! | `table` | the verdict as text |
//! | `program` | the command line |

pub mod arguments;
mod client;
mod history;
mod house;
mod net;
pub mod program;
mod random;
mod rolling;
mod run;
mod schedule;
mod stage;
mod table;
pub mod upstream;
mod verdict;
