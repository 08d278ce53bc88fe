//! The neutral vocabulary in which eras meet.
//!
//! Nobody converts one revision into another. What a client of any revision asks becomes a
//! [`Call`]; what an upstream of any revision says becomes a stream of [`Event`]s. The stages
//! between (session, interact, router, upstream) speak only this, and each knows one side.
//!
//! A message that passes through stays a [`Draft`](vestibule_frame::Draft): slices of the bytes
//! that arrived, with the few spans a hop owns replaced. Nothing here re-serialises a message.
//!
//! - [`service`]: the seam between stages: a tower service from [`Call`] to [`Events`];
//! - [`connector`]: the seam to upstreams, and [`inlet`]: the way up for what belongs to no call;
//! - [`continuation`]: what another process began;
//! - [`rounds`]: what a stateless upstream wants to know before it goes on;
//! - [`view`]: what a virtual server offers, for `initialize` and `server/discover`;
//! - [`capability`]: what a client can do for a server;
//! - [`error_map`]: how an error of one hop reads on the other.

pub mod call;
pub mod capability;
pub mod connector;
pub mod continuation;
pub mod error_map;
pub mod event;
pub mod inlet;
pub mod question;
pub mod rounds;
pub mod service;
pub mod view;

pub use call::{Call, LogLevel, SessionKey};
pub use capability::Capabilities;
pub use connector::{Closing, Connector, Outbound, Profile, Sharing};
pub use continuation::Continuation;
pub use error_map::RpcError;
pub use event::{Event, Events, Final};
pub use inlet::{Arrival, Away, Inlet};
pub use question::{Question, QuestionRef};
pub use rounds::{Answers, Rounds, Wanted, Wish};
pub use service::{Backchannel, Exchange};
pub use view::{ListPage, ServerView};

use std::future::Future;
use std::pin::Pin;

/// A boxed future that owns what it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;
