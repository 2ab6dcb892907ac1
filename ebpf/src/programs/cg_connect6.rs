//! connect(2) in a pod: a VIP becomes a backend before the first packet, so no packet needs changing.
//! Minimum kernel: 5.7 (cgroup links).

use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;
use dormouse_ebpf::packet::TCP;
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::{count, socket, tables};

#[cgroup_sock_addr(connect6)]
fn cg_connect6(ctx: SockAddrContext) -> i32 {
    let _ = connect(&ctx);
    1
}

#[inline(always)]
fn connect(ctx: &SockAddrContext) -> Option<()> {
    let led = socket::lead(ctx, |_, _| u64::from(tables::random()))?;
    if led.straight && socket::protocol(ctx) == TCP {
        tables::note(Verdict::SocketServed);
        opened(led.cookie, led.vip);
    }
    Some(())
}

/// Counts the connection once per socket: a failed connect(2) may be tried again on the same one.
#[inline(always)]
fn opened(cookie: u64, vip: u32) {
    // SAFETY: the value is copied out; one socket's entry does not change while it connects.
    if let Some(&before) = unsafe { tables::SOCKETS.get(&cookie) } {
        count::closed(before);
    }
    if tables::SOCKETS.insert(&cookie, &vip, 0).is_ok() {
        count::opened(vip);
    }
}
