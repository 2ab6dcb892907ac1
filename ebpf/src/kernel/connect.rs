//! connect(2): a VIP becomes a backend before the first packet, so no packet needs changing. The socket remembers both.

use aya_ebpf::programs::{SockAddrContext, SockContext};
use dormouse_ebpf::decide::{Asked, Choice, NO_BACKEND};
use dormouse_ebpf::maps::{SOCKET_COUNTED, SOCKET_SERVICE, Socket};
use dormouse_ebpf::packet::TCP;
use dormouse_ebpf::verdict::Verdict;

use super::socket::{self, Call, Family};
use super::{behind, count, load, tables};

/// Leads a connection, and remembers where.
#[inline(always)]
pub(crate) fn connect(ctx: &SockAddrContext, family: Family) -> i32 {
    let seed = || u64::from(tables::random());
    match socket::lead(ctx, family, seed, |asked, choice| led(ctx, asked, choice)) {
        Call::Led => 1,
        Call::Refused => socket::refuse(),
        Call::AsNamed => {
            if let Some(before) = behind::caller(ctx) {
                let_go(before);
            }
            1
        }
    }
}

/// getpeername(2): puts the VIP back that the process named.
#[inline(always)]
pub(crate) fn restore(ctx: &SockAddrContext, family: Family) {
    let named = socket::named(ctx, family);
    if let Some(vip) = vip(ctx, &named) {
        socket::put_back(ctx, family, &named.0, vip);
    }
}

/// The VIP that the socket was connected to, if this is where it was led.
#[inline(always)]
pub(crate) fn vip(ctx: &SockAddrContext, real: &([u8; 16], u16)) -> Option<([u8; 16], u16)> {
    let socket = behind::caller(ctx)?;
    // SAFETY: lies behind the socket, which outlives the call; changes only while it connects.
    let socket = unsafe { &*socket };
    (socket.port == real.1 && socket.address == real.0).then_some((socket.vip, socket.vip_port))
}

/// The end of a socket: its connection is counted as closed.
#[inline(always)]
pub(crate) fn release(ctx: &SockContext) {
    if let Some(socket) = behind::ending(ctx) {
        let_go(socket);
    }
}

/// Counts a connection once per socket: a failed connect(2) may be tried again on the same one.
#[inline(always)]
fn led(ctx: &SockAddrContext, asked: &Asked, choice: &Choice) {
    let straight = choice.backend != NO_BACKEND;
    if straight {
        tables::note(Verdict::SocketServed);
    }
    let Some(socket) = behind::caller_or_new(ctx) else {
        return;
    };
    let_go(socket);
    if straight {
        load::socket_begun(choice.backend);
    }
    let mut kind = 0;
    if choice.service {
        kind |= SOCKET_SERVICE;
    } else if straight && asked.protocol == TCP {
        kind |= SOCKET_COUNTED;
        count::socket_opened(choice.slot);
    }
    // SAFETY: lies behind the socket, which outlives the call.
    let socket = unsafe { &mut *socket };
    socket.vip = asked.target;
    socket.address = choice.address;
    socket.vip_port = asked.port;
    socket.port = choice.port;
    socket.slot = choice.slot;
    socket.backend = choice.backend;
    socket.generation = choice.generation;
    socket.kind = kind;
}

/// What the socket was led to before is nothing of it any more.
#[inline(always)]
fn let_go(socket: *mut Socket) {
    // SAFETY: lies behind the socket, which outlives the call; changes only while it connects.
    let socket = unsafe { &mut *socket };
    if socket.kind & SOCKET_COUNTED != 0 {
        count::socket_closed(socket.slot);
    }
    // Port 0: it was led nowhere.
    if socket.port != 0 && socket.backend != NO_BACKEND {
        load::socket_ended(socket.backend, socket.generation);
    }
    socket.port = 0;
    socket.kind = 0;
    socket.backend = NO_BACKEND;
}
