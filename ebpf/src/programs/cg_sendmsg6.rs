//! sendmsg(2) of an unconnected UDP socket in a pod: each datagram to a VIP goes to the same backend of it.
//! Minimum kernel: 5.7 (cgroup links).

use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;

use crate::kernel::socket;

#[cgroup_sock_addr(sendmsg6)]
fn cg_sendmsg6(ctx: SockAddrContext) -> i32 {
    let _ = socket::lead(&ctx, |cookie, vip| cookie ^ u64::from(vip));
    1
}
