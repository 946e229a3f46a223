//! The sender of a request, as far as the transport can tell senders apart.

use std::net::{IpAddr, Ipv6Addr};

/// The token and the address of a sender. Senders that share both are one peer where something is shared fairly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PeerId {
    /// The position of the token among the accepted ones; `None` if no token is needed.
    pub(super) token: Option<usize>,
    pub(super) address: PeerAddress,
}

/// The IP address of a peer, or the network of an IPv6 peer: one machine has all addresses of its network. `None` on a pipe.
pub(super) type PeerAddress = Option<IpAddr>;

pub(super) fn peer_address(address: IpAddr) -> PeerAddress {
    Some(match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    })
}
