//! The socket hooks' common ground: a process names a VIP, the kernel connects it to what stands behind.
//!
//! What depends on the client's address (source ranges, clients that keep their backend) and what is refused is left to
//! the packet for pods: there the address is known, and the answer is the network's. The node itself is known by its own.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::bpf_sock_addr;
use aya_ebpf::helpers::generated::{bpf_get_netns_cookie, bpf_get_socket_cookie, bpf_set_retval};
use aya_ebpf::programs::SockAddrContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{Answer, Asked, Choice, decide, is_the_packets, may_be_ours};
use dormouse_ebpf::packet::{is_v4, mapped, v4_of};
use dormouse_ebpf::pick::mix;
use dormouse_ebpf::service::Route;

use super::tables::Kernel;
use super::{rewrite, tables, wake};

/// The address family of a hook.
#[derive(Clone, Copy)]
pub(crate) enum Family {
    /// `*4`.
    V4,
    /// `*6`, with IPv4-mapped addresses.
    V6,
}

const ECONNREFUSED: i32 = 111;

/// How a call goes on.
pub(crate) enum Call {
    /// To the address that was named.
    AsNamed,
    /// To what stands behind it.
    Led,
    /// Not at all.
    Refused,
}

/// Puts what stands behind a VIP in its place, and tells `led`. `seed` gives the pick's random bits.
#[inline(always)]
pub(crate) fn lead(
    ctx: &SockAddrContext,
    family: Family,
    seed: impl FnOnce() -> u64,
    led: impl FnOnce(&Asked, &Choice),
) -> Call {
    let Some(config) = tables::config() else {
        return Call::AsNamed;
    };
    let (address, port) = named(ctx, family);
    if !may_be_ours(&Kernel, config, &address) {
        return Call::AsNamed;
    }
    let mut asked = Asked {
        target: address,
        port,
        protocol: protocol(ctx),
        by_node: is_node(ctx, config),
        hash: mix(seed()),
        ..Asked::default()
    };
    if asked.by_node {
        asked.source = *config.node_address_for(&address);
    } else if is_the_packets(&Kernel, config, &asked) {
        return Call::AsNamed;
    }
    let mut choice = Choice::default();
    match decide(&Kernel, &asked, &mut choice) {
        Answer::Go(verdict) => {
            if let Some(verdict) = verdict {
                tables::note(verdict);
            }
            if !choice.service {
                wake::wake(choice.slot, Route::unpack(choice.route));
            } else if choice.group != 0 {
                tables::keep(&asked.source, &choice);
            }
            rename(ctx, family, &choice.address, choice.port);
            led(&asked, &choice);
            Call::Led
        }
        Answer::Reject(verdict) if asked.by_node => {
            tables::note_drop(verdict, choice.slot);
            Call::Refused
        }
        _ => Call::AsNamed,
    }
}

/// The caller is the node itself, not a pod.
#[inline(always)]
fn is_node(ctx: &SockAddrContext, config: &Config) -> bool {
    // SAFETY: the helper takes the hook's context.
    unsafe { bpf_get_netns_cookie(ctx.as_ptr()) == config.netns }
}

/// What the call returns when it is refused.
#[inline(always)]
pub(crate) fn refuse() -> i32 {
    // SAFETY: the helper takes an error number.
    unsafe { bpf_set_retval(-ECONNREFUSED) };
    0
}

/// The address that the caller named (or that it shall be told); IPv4 is mapped.
#[inline(always)]
pub(crate) fn named(ctx: &SockAddrContext, family: Family) -> ([u8; 16], u16) {
    let raw = ctx.sock_addr;
    // SAFETY: fields of the context; the verifier allows reads of four bytes each.
    unsafe {
        let port = u16::from_be(core::ptr::read_volatile(&raw const (*raw).user_port) as u16);
        if matches!(family, Family::V4) {
            let word = core::ptr::read_volatile(&raw const (*raw).user_ip4);
            return (mapped(word.to_ne_bytes()), port);
        }
        let at = (&raw const (*raw).user_ip6).cast::<u32>();
        let word = |n: usize| core::ptr::read_volatile(at.add(n));
        let words = [word(0), word(1), word(2), word(3)];
        (rewrite::address(words), port)
    }
}

/// Replaces that address, by one of the same family.
#[inline(always)]
fn rename(ctx: &SockAddrContext, family: Family, address: &[u8; 16], port: u16) {
    let raw: *mut bpf_sock_addr = ctx.sock_addr;
    // SAFETY: fields of the context; the verifier allows writes of four bytes each.
    unsafe {
        if matches!(family, Family::V4) {
            let word = u32::from_ne_bytes(v4_of(address));
            core::ptr::write_volatile(&raw mut (*raw).user_ip4, word);
        } else {
            let words = rewrite::words(address);
            let at = (&raw mut (*raw).user_ip6).cast::<u32>();
            core::ptr::write_volatile(at, words[0]);
            core::ptr::write_volatile(at.add(1), words[1]);
            core::ptr::write_volatile(at.add(2), words[2]);
            core::ptr::write_volatile(at.add(3), words[3]);
        }
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
fn protocol(ctx: &SockAddrContext) -> u8 {
    // SAFETY: a field of the context.
    (unsafe { core::ptr::read_volatile(&raw const (*ctx.sock_addr).protocol) }) as u8
}

/// Puts the VIP where the process would else read what stands behind it; never one of another family.
#[inline(always)]
pub(crate) fn put_back(
    ctx: &SockAddrContext,
    family: Family,
    real: &[u8; 16],
    vip: ([u8; 16], u16),
) {
    if is_v4(&vip.0) == is_v4(real) {
        rename(ctx, family, &vip.0, vip.1);
    }
}
