//! sendmsg(2) of an unconnected UDP socket in a pod: each datagram to a VIP goes to the same backend of it.
//! Minimum kernel: 5.7 (cgroup links).

use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;
use dormouse_ebpf::pick::mix;

use crate::kernel::choose::{Asked, Pick, choose};
use crate::kernel::{socket, tables};

#[cgroup_sock_addr(sendmsg6)]
fn cg_sendmsg6(ctx: SockAddrContext) -> i32 {
    let _ = send(&ctx);
    1
}

#[inline(always)]
fn send(ctx: &SockAddrContext) -> Option<()> {
    let config = tables::config()?;
    let (vip_address, vip_port) = socket::named(ctx);
    let vip = config.vip(&vip_address)?;
    let cookie = socket::cookie(ctx);
    let asked = Asked {
        vip,
        port: vip_port,
        begins: true,
        pick: Pick::Random(mix(cookie ^ u64::from(vip))),
    };
    let choice = choose(&asked, config)?;
    socket::rename(ctx, &choice.address, choice.port);
    socket::remember(
        cookie,
        (&choice.address, choice.port),
        (vip_address, vip_port),
    );
    Some(())
}
