//! BPF socket storage: the translation of a connected socket, stored with the socket and freed with it.

use core::ffi::c_void;

use aya_ebpf::bindings::{BPF_SK_STORAGE_GET_F_CREATE, bpf_sock};
use aya_ebpf::btf_maps::SkStorage;
use aya_ebpf::helpers::generated::{bpf_sk_fullsock, bpf_sk_storage_get};
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::{SkBuffContext, SockAddrContext, SockContext};
use dormouse_ebpf::maps::Socket;

/// The sockets that connect(2) has translated. Pinned by the loader.
#[btf_map(name = "socket")]
static SOCKETS: SkStorage<Socket> = SkStorage::new();

/// The storage of the calling socket; none if it was never translated.
#[inline(always)]
pub(crate) fn caller(ctx: &SockAddrContext) -> Option<*mut Socket> {
    storage(caller_socket(ctx).cast(), 0)
}

/// The storage of the calling socket, created all zero if there is none. `None`: the kernel had no memory.
#[inline(always)]
pub(crate) fn caller_or_new(ctx: &SockAddrContext) -> Option<*mut Socket> {
    storage(
        caller_socket(ctx).cast(),
        u64::from(BPF_SK_STORAGE_GET_F_CREATE),
    )
}

/// The storage of the socket that sends a packet.
#[inline(always)]
pub(crate) fn sender(ctx: &SkBuffContext) -> Option<*mut Socket> {
    // SAFETY: a field of the context.
    let socket = unsafe { (*ctx.skb.skb).__bindgen_anon_2.sk };
    if socket.is_null() {
        return None;
    }
    // SAFETY: the helper takes a socket, and returns null for a request or TIME_WAIT socket.
    let socket = unsafe { bpf_sk_fullsock(socket) };
    if socket.is_null() {
        return None;
    }
    storage(socket.cast(), 0)
}

/// The storage of a socket that is closed.
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
