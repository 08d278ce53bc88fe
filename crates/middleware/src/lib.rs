//! The layers between the record of a request and its session: everything that is decided on the
//! head alone, in this order, and then the frame:
//!
//! | layer | decides | refuses with |
//! |---|---|---|
//! | [`mod@panic`] | – | 500 |
//! | [`head`] | sizes and repetitions of headers; strips what is not ours | 431, 400 |
//! | [`route`] | path → tenant, server, plan, or none | – |
//! | [`origin`] | Host, then Origin, then whether there is a plan | 400, 403, 404 |
//! | [`preflight`] | answers OPTIONS; CORS headers on every answer | – |
//! | [`address`] | the client's address and its rate | 429 |
//! | [`size`] | declared size of the body | 413 |
//! | [`auth`] | who is calling | 400, 401, 429 |
//! | [`quota`] | budgets of tenant and caller | 429 |
//! | [`deadline`] | – | – |
//! | [`accept`] | method, Accept, Content-Type | 405, 406, 415 |
//! | [`frame`] | the body, read once and scanned | 400, 413 |
//!
//! A layer states its rule as a pure function beside it, writes its fact into the request's
//! extensions once, and before the frame never reads the body (only a quota's refusal reads a prefix,
//! for the id).
//! Layers that only admit or refuse are [`gate::Gate`]s; the others bring their own service.
//! No layer knows what comes after it: the pipeline is put together elsewhere.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response};
use tower::Service;
use vestibule_frame::body::FrameBody;

pub mod accept;
pub mod address;
mod admitted;
pub mod auth;
pub mod deadline;
pub mod facts;
pub mod frame;
pub mod gate;
pub mod gcra;
pub mod head;
pub mod origin;
pub mod panic;
pub mod plans;
pub mod preflight;
pub mod proxies;
pub mod quota;
pub mod reject;
pub mod route;
pub mod size;
#[cfg(test)]
mod testing;

pub use admitted::{Admitted, Answering};

/// What a layer of this room wraps: a service that always answers.
///
/// Implemented by every service of that shape; never by hand.
pub trait Stage:
    Service<Request<FrameBody>, Response = Response<Body>, Error = Infallible>
{
}

impl<S> Stage for S where
    S: Service<Request<FrameBody>, Response = Response<Body>, Error = Infallible>
{
}
