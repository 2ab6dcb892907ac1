//! The socket hooks' common ground: a pod's process names a VIP, the kernel connects it to what stands behind.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::bpf_sock_addr;
use aya_ebpf::helpers::generated::bpf_get_socket_cookie;
use aya_ebpf::programs::SockAddrContext;
use dormouse_ebpf::maps::{Peer, PeerKey};
use dormouse_ebpf::pick::mix;

use super::choose::{Asked, Pick, choose};
use super::{rewrite, tables};

/// Where a socket was led.
pub(crate) struct Led {
    /// The socket.
    pub(crate) cookie: u64,
    /// The VIP that it named.
    pub(crate) vip: u32,
    /// Straight to a pod, not to an activator.
    pub(crate) straight: bool,
}

/// Puts what stands behind a VIP in its place, and remembers the VIP. `seed` makes the pick's random bits of the
/// socket's number and the VIP's index. `None` where no VIP was named, or nothing stands behind it.
#[inline(always)]
pub(crate) fn lead(ctx: &SockAddrContext, seed: impl FnOnce(u64, u32) -> u64) -> Option<Led> {
    let config = tables::config()?;
    let (vip_address, vip_port) = named(ctx);
    let vip = config.vip(&vip_address)?;
    let cookie = cookie(ctx);
    let asked = Asked {
        vip,
        port: vip_port,
        begins: true,
        pick: Pick::Random(mix(seed(cookie, vip))),
    };
    let choice = choose(&asked, config)?;
    rename(ctx, &choice.address, choice.port);
    remember(
        cookie,
        (&choice.address, choice.port),
        (vip_address, vip_port),
    );
    Some(Led {
        cookie,
        vip,
        straight: choice.via.is_none(),
    })
}

/// The address that the caller named (or that it shall be told).
#[inline(always)]
fn named(ctx: &SockAddrContext) -> ([u8; 16], u16) {
    let raw = ctx.sock_addr;
    // SAFETY: fields of the context; the verifier allows reads of four bytes each.
    unsafe {
        let at = (&raw const (*raw).user_ip6).cast::<u32>();
        let word = |n: usize| core::ptr::read_volatile(at.add(n));
        let words = [word(0), word(1), word(2), word(3)];
        let port = core::ptr::read_volatile(&raw const (*raw).user_port);
        (rewrite::address(words), u16::from_be(port as u16))
    }
}

/// Replaces that address.
#[inline(always)]
fn rename(ctx: &SockAddrContext, address: &[u8; 16], port: u16) {
    let raw: *mut bpf_sock_addr = ctx.sock_addr;
    let words = rewrite::words(address);
    // SAFETY: fields of the context; the verifier allows writes of four bytes each.
    unsafe {
        let at = (&raw mut (*raw).user_ip6).cast::<u32>();
        core::ptr::write_volatile(at, words[0]);
        core::ptr::write_volatile(at.add(1), words[1]);
        core::ptr::write_volatile(at.add(2), words[2]);
        core::ptr::write_volatile(at.add(3), words[3]);
        core::ptr::write_volatile(&raw mut (*raw).user_port, u32::from(port.to_be()));
    }
}

/// The socket's number, unique since boot.
#[inline(always)]
pub(crate) fn cookie(ctx: &impl EbpfContext) -> u64 {
    // SAFETY: the helper takes the hook's context.
    unsafe { bpf_get_socket_cookie(ctx.as_ptr()) }
}

/// The socket's protocol.
#[inline(always)]
pub(crate) fn protocol(ctx: &SockAddrContext) -> u8 {
    // SAFETY: a field of the context.
    (unsafe { core::ptr::read_volatile(&raw const (*ctx.sock_addr).protocol) }) as u8
}

/// Remembers which VIP stands before an address on this socket.
#[inline(always)]
fn remember(cookie: u64, real: (&[u8; 16], u16), vip: ([u8; 16], u16)) {
    let key = PeerKey {
        cookie,
        address: *real.0,
        port: u32::from(real.1),
        pad: 0,
    };
    let _ = tables::PEERS.insert(
        &key,
        &Peer {
            address: vip.0,
            port: u32::from(vip.1),
        },
        0,
    );
}

/// Puts the VIP back where the process would else read what stands behind it.
#[inline(always)]
pub(crate) fn restore(ctx: &SockAddrContext) {
    let (address, port) = named(ctx);
    let key = PeerKey {
        cookie: cookie(ctx),
        address,
        port: u32::from(port),
        pad: 0,
    };
    // SAFETY: the value is copied out; one socket's entries do not change while it asks.
    if let Some(peer) = unsafe { tables::PEERS.get(&key) } {
        rename(ctx, &peer.address, peer.port as u16);
    }
}
