//! connect(2) and getpeername(2): DNAT of connected sockets. The VIP is replaced by a backend before the first packet, so no
//! packet needs translation; the socket's storage keeps both.

use aya_ebpf::programs::{SockAddrContext, SockContext};
use dormouse_ebpf::decide::{Choice, NO_BACKEND, Request};
use dormouse_ebpf::maps::{SOCKET_COUNTED, SOCKET_SERVICE, Socket};
use dormouse_ebpf::packet::TCP;
use dormouse_ebpf::verdict::Verdict;

use super::socket::{self, Endpoint, Family, Outcome, Seed};
use super::{count, load, socket_storage, verdicts};

/// Translates the target of connect(2) and records it in the socket's storage.
#[inline(always)]
pub(crate) fn connect(ctx: &SockAddrContext, family: Family) -> i32 {
    let record = |request: &Request, choice: &Choice| record(ctx, request, choice);
    match socket::dnat(ctx, family, Seed::Random, record) {
        Outcome::Translated => 1,
        Outcome::Refused => socket::refuse(),
        Outcome::Unchanged => {
            if let Some(before) = socket_storage::caller(ctx) {
                release_backend(before);
            }
            1
        }
    }
}

/// Replaces the backend by the VIP that the process connected to.
#[inline(always)]
pub(crate) fn getpeername(ctx: &SockAddrContext, family: Family) {
    let peer = socket::target(ctx, family);
    if let Some(vip) = vip(ctx, &peer) {
        socket::reverse_nat(ctx, family, &peer, &vip);
    }
}

/// The VIP that the socket was connected to, if it was translated to `backend`.
#[inline(always)]
pub(crate) fn vip(ctx: &SockAddrContext, backend: &Endpoint) -> Option<Endpoint> {
    let socket = socket_storage::caller(ctx)?;
    // SAFETY: the socket's storage, which outlives the call; changes only while it connects.
    let socket = unsafe { &*socket };
    let is_its_own = socket.port == backend.port && socket.address == backend.address;
    is_its_own.then_some(Endpoint {
        address: socket.vip,
        port: socket.vip_port,
    })
}

/// Counts the connection of a socket that is closed.
#[inline(always)]
pub(crate) fn release(ctx: &SockContext) {
    if let Some(socket) = socket_storage::ending(ctx) {
        release_backend(socket);
    }
}

/// Records the translation, and counts the connection once for each socket: a failed connect(2) may be repeated on the same
/// one.
#[inline(always)]
fn record(ctx: &SockAddrContext, request: &Request, choice: &Choice) {
    let to_backend = choice.backend != NO_BACKEND;
    if to_backend {
        verdicts::note(Verdict::SocketServed);
    }
    let Some(socket) = socket_storage::caller_or_new(ctx) else {
        return;
    };
    release_backend(socket);
    if to_backend {
        load::socket_begun(choice.backend);
    }
    let mut kind = 0;
    if choice.service {
        kind |= SOCKET_SERVICE;
    } else if to_backend && request.protocol == TCP {
        kind |= SOCKET_COUNTED;
        count::socket_opened(choice.slot);
    }
    // SAFETY: the socket's storage, which outlives the call.
    let socket = unsafe { &mut *socket };
    socket.vip = request.target;
    socket.address = choice.address;
    socket.vip_port = request.port;
    socket.port = choice.port;
    socket.slot = choice.slot;
    socket.backend = choice.backend;
    socket.generation = choice.generation;
    socket.kind = kind;
}

/// Ends the socket's translation and counts its connection as closed.
#[inline(always)]
fn release_backend(socket: *mut Socket) {
    // SAFETY: the socket's storage, which outlives the call; changes only while it connects.
    let socket = unsafe { &mut *socket };
    if socket.kind & SOCKET_COUNTED != 0 {
        count::socket_closed(socket.slot);
    }
    // Port 0: it was not translated.
    if socket.port != 0 && socket.backend != NO_BACKEND {
        load::socket_ended(socket.backend, socket.generation);
    }
    socket.port = 0;
    socket.kind = 0;
    socket.backend = NO_BACKEND;
}
