//! Upstreams that are child processes and speak over stdin and stdout.
//!
//! | module | holds |
//! |---|---|
//! | `process` | one child: started, read, written to, stopped, never left behind |
//! | `lines` | the reading of lines with a cap |
//! | `hear` | whom a line is for |
//! | `modern` | calls to a stateless process, and the one process they share |
//! | `open` | the first messages: which era, `initialize` |

mod hear;
mod lines;
pub(crate) mod modern;
pub(crate) mod open;
pub(crate) mod process;
