//! Brings each request of a client to where it is answered, and what comes back into the client's
//! names.
//!
//! A *transparent* server is one upstream and changes neither names nor URIs; a *federated* server
//! is several (or one, or none), whose names and URIs carry the upstream's id. Which upstream a
//! request belongs to is found by the catalog's table; whether the caller may know of the target is
//! decided there too, so that every way to name an item comes to the same.
//!
//! The router knows no transport and no session: it turns a [`Call`](vestibule_exchange::Call)
//! into an [`Outbound`](vestibule_exchange::Outbound) for the
//! [`Connector`](vestibule_exchange::Connector), and the events of that into events for the client.
//!
//! | module | holds |
//! |---|---|
//! | `service` | the one screen that says what happens to each request |
//! | `method` | which way a method goes, exhaustively |
//! | `select` | whose a target is |
//! | `one` | a call to one upstream: headers, capabilities, sharing |
//! | `fanout` | lists and log levels |
//! | `listen` | `subscriptions/listen` |
//! | `view` | what a server offers |
//! | `relay`, `rewrite`, `inlet` | the way back |
//! | `names`, `seen` | names and URIs on it, and who was given which |

mod fanout;
mod inlet;
mod listen;
mod method;
mod names;
mod one;
mod relay;
mod rewrite;
mod seen;
mod select;
mod service;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod view;

pub use service::Router;
