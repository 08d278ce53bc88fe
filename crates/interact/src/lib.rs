//! Interactive calls: what an upstream asks while it works, and the answers.
//!
//! Calls that ask nothing go straight through. Between legacy client and legacy upstream questions
//! pass and are answered at most once; between modern client and modern upstream rounds of
//! `input_required` pass with the upstream's state sealed. What a modern upstream wants to know of a
//! client with a session is checked and labelled here and asked by the session room, which calls
//! again. A question of a legacy upstream to a modern client cannot be relayed yet, and the call ends
//! at once with -31007.
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
