//! connect(2): a VIP becomes a backend before the first packet, so no packet needs changing.

use aya_ebpf::programs::SockAddrContext;
use dormouse_ebpf::maps::{SOCKET_COUNTED, SOCKET_SERVICE};
use dormouse_ebpf::packet::TCP;
use dormouse_ebpf::verdict::Verdict;

use super::socket::{self, Call, Family, Led};
use super::{count, tables};

/// Leads a connection, and remembers where.
#[inline(always)]
pub(crate) fn connect(ctx: &SockAddrContext, family: Family) -> i32 {
    match socket::lead(ctx, family, |_| u64::from(tables::random())) {
        Call::AsNamed => 1,
        Call::Refused => socket::refuse(),
        Call::Led(led) => {
            if led.straight {
                connected(led, socket::protocol(ctx) == TCP);
            }
            1
        }
    }
}

/// Counts an app's connection once per socket: a failed connect(2) may be tried again on the same one.
#[inline(always)]
fn connected(mut led: Led, tcp: bool) {
    tables::note(Verdict::SocketServed);
    let counts = tcp && led.socket.kind & SOCKET_SERVICE == 0;
    if counts {
        led.socket.kind |= SOCKET_COUNTED;
    }
    // SAFETY: the value is copied out; one socket's entry does not change while it connects.
    if let Some(&before) = unsafe { tables::SOCKETS.get(&led.cookie) }
        && before.kind & SOCKET_COUNTED != 0
    {
        count::closed(before.slot);
    }
    if tables::SOCKETS.insert(&led.cookie, &led.socket, 0).is_ok() && counts {
        count::opened(led.socket.slot);
    }
}
