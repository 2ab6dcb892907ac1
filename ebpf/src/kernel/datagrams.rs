//! sendmsg(2) and recvmsg(2) of unconnected sockets: what one of them sends to, and hears from, may be many VIPs.

use aya_ebpf::programs::SockAddrContext;
use dormouse_ebpf::decide::{Asked, Choice};
use dormouse_ebpf::maps::{Peer, PeerKey};

use super::socket::{self, Call, Family};
use super::{connect, tables};

/// Leads a datagram, each to the same backend of its VIP.
#[inline(always)]
pub(crate) fn send(ctx: &SockAddrContext, family: Family) -> i32 {
    let seed = || socket::cookie(ctx);
    match socket::lead(ctx, family, seed, |asked, choice| {
        remember(ctx, asked, choice);
    }) {
        Call::Refused => socket::refuse(),
        Call::AsNamed | Call::Led => 1,
    }
}

/// Has a datagram come from the VIP that it is an answer of.
#[inline(always)]
pub(crate) fn receive(ctx: &SockAddrContext, family: Family) {
    let named = socket::named(ctx, family);
    if let Some(vip) = connect::vip(ctx, &named) {
        return socket::put_back(ctx, family, &named.0, vip);
    }
    let key = PeerKey {
        cookie: socket::cookie(ctx),
        address: named.0,
        port: u32::from(named.1),
        pad: 0,
    };
    // SAFETY: the value is copied out; one socket's entries do not change while it asks.
    if let Some(peer) = unsafe { tables::PEERS.get(&key) } {
        socket::put_back(ctx, family, &named.0, (peer.address, peer.port as u16));
    }
}

/// Remembers which VIP stands before an address on this socket.
#[inline(always)]
fn remember(ctx: &SockAddrContext, asked: &Asked, choice: &Choice) {
    let key = PeerKey {
        cookie: socket::cookie(ctx),
        address: choice.address,
        port: u32::from(choice.port),
        pad: 0,
    };
    let vip = Peer {
        address: asked.target,
        port: u32::from(asked.port),
    };
    let _ = tables::PEERS.insert(&key, &vip, 0);
}
