//! Facts that one layer of this room writes into the request's extensions and later ones read.
//!
//! Facts of other rooms' concern have their type in `terms` ([`vestibule_terms::ServerPlan`],
//! [`vestibule_terms::Principal`], [`vestibule_terms::Deadline`], [`vestibule_terms::Accepts`]) or in
//! `frame` (the header view). The listener's fact read here is the peer, as axum's [`ConnectInfo`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::ConnectInfo;
use http::{Extensions, HeaderValue};
use vestibule_terms::Record;

/// The client's address by the rules of `listen.proxies`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// The request's `Origin` as sent, once it was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedOrigin(pub HeaderValue);

/// The record of this request; without the record layer, one that nobody reads.
pub(crate) fn record(extensions: &Extensions) -> Record {
    extensions.get::<Record>().cloned().unwrap_or_default()
}

/// The connection's peer. Where no listener named one, all such requests are one client.
pub(crate) fn peer(extensions: &Extensions) -> IpAddr {
    extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip())
}
