//! What is remembered of a connected socket: it lies behind the socket itself, is found by a pointer, and goes with it.

use core::ffi::c_void;

use aya_ebpf::bindings::{BPF_SK_STORAGE_GET_F_CREATE, bpf_sock};
use aya_ebpf::btf_maps::SkStorage;
use aya_ebpf::helpers::generated::{bpf_sk_fullsock, bpf_sk_storage_get};
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::{SkBuffContext, SockAddrContext, SockContext};
use dormouse_ebpf::maps::Socket;

/// Sockets that were led somewhere by connect(2). Pinned by the loader.
#[btf_map(name = "socket")]
static SOCKETS: SkStorage<Socket> = SkStorage::new();

/// What is remembered of the socket that calls.
#[inline(always)]
pub(crate) fn caller(ctx: &SockAddrContext) -> Option<*mut Socket> {
    storage(caller_socket(ctx).cast(), 0)
}

/// The same, and all zero if nothing was. `None`: the kernel had no memory.
#[inline(always)]
pub(crate) fn caller_or_new(ctx: &SockAddrContext) -> Option<*mut Socket> {
    storage(
        caller_socket(ctx).cast(),
        u64::from(BPF_SK_STORAGE_GET_F_CREATE),
    )
}

/// What is remembered of the socket that sends a packet.
#[inline(always)]
pub(crate) fn sender(ctx: &SkBuffContext) -> Option<*mut Socket> {
    // SAFETY: a field of the context.
    let socket = unsafe { (*ctx.skb.skb).__bindgen_anon_2.sk };
    if socket.is_null() {
        return None;
    }
    // SAFETY: the helper takes a socket; what is none yet, or no more, it makes null.
    let socket = unsafe { bpf_sk_fullsock(socket) };
    if socket.is_null() {
        return None;
    }
    storage(socket.cast(), 0)
}

/// What is remembered of a socket that ends.
#[inline(always)]
pub(crate) fn ending(ctx: &SockContext) -> Option<*mut Socket> {
    storage(ctx.sock.cast(), 0)
}

#[inline(always)]
fn caller_socket(ctx: &SockAddrContext) -> *mut bpf_sock {
    // SAFETY: a field of the context.
    unsafe { (*ctx.sock_addr).__bindgen_anon_1.sk }
}

#[inline(always)]
fn storage(socket: *mut c_void, flags: u64) -> Option<*mut Socket> {
    let map = (&raw const SOCKETS).cast_mut().cast();
    // SAFETY: callers pass a socket, or the context that is one, as their hook has it.
    let socket = unsafe { bpf_sk_storage_get(map, socket, core::ptr::null_mut(), flags) };
    (!socket.is_null()).then_some(socket.cast())
}
