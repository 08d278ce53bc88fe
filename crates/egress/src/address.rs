//! What kind of address an address is. Pure tables over parsed addresses; text is parsed by `url`
//! and the standard library, never here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The kinds that are decided differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Reachable from anywhere.
    Public,
    /// An organisation's own: RFC 1918, unique local, shared (carrier NAT).
    Private,
    /// This machine.
    Loopback,
    /// This link.
    LinkLocal,
    /// Where clouds hand out credentials.
    Metadata,
    /// Several receivers.
    Multicast,
    /// Everything that is no place to connect to: unspecified, documentation, benchmarks,
    /// transition mechanisms, future use.
    Reserved,
}

const fn v4(a: u8, b: u8, c: u8, d: u8, len: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), len))
}

const fn v6(head: [u16; 3], len: u8) -> IpNet {
    let [a, b, c] = head;
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0),
        len,
    ))
}

const fn one6(a: u16, b: u16, last: u16) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, last),
        128,
    ))
}

/// The first row that contains an address decides; IPv4 that is in no row is public, IPv6 that is
/// in no row is reserved, since only `2000::/3` is given out.
const TABLE: [(IpNet, Kind); 37] = [
    (v4(169, 254, 169, 254, 32), Kind::Metadata), // nearly every cloud
    (v4(169, 254, 170, 0, 24), Kind::Metadata),   // container credentials
    (v4(100, 100, 100, 200, 32), Kind::Metadata),
    (v4(168, 63, 129, 16, 32), Kind::Metadata), // a public address, but of the host itself
    (v4(192, 0, 0, 192, 32), Kind::Metadata),
    (one6(0xfd00, 0x0ec2, 0x0254), Kind::Metadata),
    (one6(0xfd00, 0x0ec2, 0x0023), Kind::Metadata),
    (one6(0xfd20, 0x00ce, 0x0254), Kind::Metadata),
    (v4(0, 0, 0, 0, 8), Kind::Reserved),
    (v4(10, 0, 0, 0, 8), Kind::Private),
    (v4(100, 64, 0, 0, 10), Kind::Private),
    (v4(127, 0, 0, 0, 8), Kind::Loopback),
    (v4(169, 254, 0, 0, 16), Kind::LinkLocal),
    (v4(172, 16, 0, 0, 12), Kind::Private),
    (v4(192, 0, 0, 0, 24), Kind::Reserved),
    (v4(192, 0, 2, 0, 24), Kind::Reserved),
    (v4(192, 88, 99, 0, 24), Kind::Reserved),
    (v4(192, 168, 0, 0, 16), Kind::Private),
    (v4(198, 18, 0, 0, 15), Kind::Reserved),
    (v4(198, 51, 100, 0, 24), Kind::Reserved),
    (v4(203, 0, 113, 0, 24), Kind::Reserved),
    (v4(224, 0, 0, 0, 4), Kind::Multicast),
    (v4(240, 0, 0, 0, 4), Kind::Reserved),
    (v4(255, 255, 255, 255, 32), Kind::Reserved),
    (one6(0, 0, 1), Kind::Loopback),
    (v6([0xfc00, 0, 0], 7), Kind::Private),
    (v6([0xfe80, 0, 0], 10), Kind::LinkLocal),
    (v6([0xfec0, 0, 0], 10), Kind::Reserved),
    (v6([0xff00, 0, 0], 8), Kind::Multicast),
    (v6([0x2001, 0, 0], 23), Kind::Reserved), // Teredo, ORCHID and others
    (v6([0x2001, 0x0db8, 0], 32), Kind::Reserved),
    (v6([0x2002, 0, 0], 16), Kind::Reserved), // 6to4
    (v6([0x3fff, 0, 0], 20), Kind::Reserved),
    (v6([0x0064, 0xff9b, 1], 48), Kind::Reserved), // local NAT64: its prefix length is unknown
    (v6([0x0100, 0, 0], 64), Kind::Reserved),
    (v6([0x2000, 0, 0], 3), Kind::Public),
    (v6([0, 0, 0], 0), Kind::Reserved),
];

/// The well-known NAT64 prefix, whose last 32 bits are the IPv4 address that is reached.
const NAT64: IpNet = v6([0x0064, 0xff9b, 0], 96);
/// Deprecated "compatible" addresses, the same for machines that still route them.
const COMPATIBLE: IpNet = v6([0, 0, 0], 96);

/// The address that is really reached: IPv4 inside IPv6 is taken out.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else {
        return address;
    };
    if let Some(four) = six.to_ipv4_mapped() {
        return IpAddr::V4(four);
    }
    let [.., a, b, c, d] = six.octets();
    let carries_v4 = NAT64.contains(&address)
        || (COMPATIBLE.contains(&address) && u128::from(six) > u128::from(u16::MAX));
    if carries_v4 {
        return IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    }
    address
}

/// The kind of a canonical address.
pub(crate) fn kind(address: IpAddr) -> Kind {
    TABLE
        .iter()
        .find(|(network, _)| network.contains(&address))
        .map_or(Kind::Public, |(_, kind)| *kind)
}

/// Whether `network` was meant for `kind`: it lies inside one range of it. `0.0.0.0/0` is not an
/// explicit word about loopback.
pub(crate) fn names_kind(network: &IpNet, kind: Kind) -> bool {
    TABLE
        .iter()
        .filter(|(_, of)| *of == kind)
        .any(|(range, _)| range.contains(network))
}
