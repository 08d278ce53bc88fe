//! Between clients and replicas: a balancer that goes round among the ready ones, and faults of
//! connections that the seed decides.

mod balancer;
mod faults;
mod pump;

pub(crate) use balancer::{Balancer, Side};
pub(crate) use faults::Weather;
