//! connect(2) in a pod: a VIP becomes a backend before the first packet, so no packet needs changing.
//! Minimum kernel: 5.7 (cgroup links).

use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;
use dormouse_ebpf::packet::TCP;
use dormouse_ebpf::pick::mix;
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::choose::{Asked, Pick, choose};
use crate::kernel::{count, socket, tables};

#[cgroup_sock_addr(connect6)]
fn cg_connect6(ctx: SockAddrContext) -> i32 {
    let _ = connect(&ctx);
    1
}

#[inline(always)]
fn connect(ctx: &SockAddrContext) -> Option<()> {
    let config = tables::config()?;
    let (vip_address, vip_port) = socket::named(ctx);
    let vip = config.vip(&vip_address)?;
    let cookie = socket::cookie(ctx);
    let asked = Asked {
        vip,
        port: vip_port,
        begins: true,
        pick: Pick::Random(mix(u64::from(tables::random()))),
    };
    let choice = choose(&asked, config)?;
    socket::rename(ctx, &choice.address, choice.port);
    socket::remember(
        cookie,
        (&choice.address, choice.port),
        (vip_address, vip_port),
    );
    if choice.via.is_none() && socket::protocol(ctx) == TCP {
        tables::note(Verdict::SocketServed);
        opened(cookie, vip);
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
