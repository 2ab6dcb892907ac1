//! sendmsg(2) and recvmsg(2): DNAT and reverse NAT of unconnected sockets, which may send to many VIPs.

use aya_ebpf::programs::SockAddrContext;
use dormouse_ebpf::decide::{Choice, Request};
use dormouse_ebpf::maps::{ReversePeer, ReversePeerKey};

use super::socket::{self, Endpoint, Family, Outcome, Seed};
use super::{connect, tables};

/// Translates the target of a datagram: all datagrams of a socket to one VIP get the same backend.
#[inline(always)]
pub(crate) fn sendmsg(ctx: &SockAddrContext, family: Family) -> i32 {
    let record = |request: &Request, choice: &Choice| record(ctx, request, choice);
    match socket::dnat(ctx, family, Seed::Cookie, record) {
        Outcome::Refused => socket::refuse(),
        Outcome::Unchanged | Outcome::Translated => 1,
    }
}

/// Replaces the source of a received datagram, a backend, by the VIP that the socket has sent to.
#[inline(always)]
pub(crate) fn recvmsg(ctx: &SockAddrContext, family: Family) {
    let source = socket::target(ctx, family);
    if let Some(vip) = connect::vip(ctx, &source) {
        return socket::reverse_nat(ctx, family, &source, &vip);
    }
    let key = ReversePeerKey {
        cookie: socket::cookie(ctx),
        address: source.address,
        port: u32::from(source.port),
        pad: 0,
    };
    // SAFETY: the value is copied out; one socket's entries do not change during its call.
    if let Some(peer) = unsafe { tables::REVERSE_PEERS.get(&key) } {
        let vip = Endpoint {
            address: peer.address,
            port: peer.port as u16,
        };
        socket::reverse_nat(ctx, family, &source, &vip);
    }
}

/// Records the VIP of a translated datagram.
#[inline(always)]
fn record(ctx: &SockAddrContext, request: &Request, choice: &Choice) {
    let key = ReversePeerKey {
        cookie: socket::cookie(ctx),
        address: choice.address,
        port: u32::from(choice.port),
        pad: 0,
    };
    let vip = ReversePeer {
        address: request.target,
        port: u32::from(request.port),
    };
    let _ = tables::REVERSE_PEERS.insert(&key, &vip, 0);
}
