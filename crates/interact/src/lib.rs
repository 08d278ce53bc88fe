//! Interactive calls: what an upstream asks while it works, and the answers.
//!
//! Calls that ask nothing go straight through. Between legacy client and legacy upstream questions
//! pass and are answered at most once; between modern client and modern upstream rounds of
//! `input_required` pass with the upstream's state sealed. Where the two are of different eras a
//! question cannot be relayed yet, and the call ends at once with -31007.
//!
//! | module | holds |
//! |---|---|
//! | `service` | the stage around the router, questions of legacy upstreams |
//! | `rounds` | `input_required` results and retries |
//! | `state`, `digest` | the sealed state and what it is bound to |
//! | `questions` | capability checks and labels |
//! | `answers` | open questions, the way back to upstreams |

mod answers;
mod digest;
mod questions;
mod rounds;
mod service;
mod state;
#[cfg(test)]
mod tests;

pub use service::Interact;
