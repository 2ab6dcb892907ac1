//! getpeername(2) of an IPv4 socket: returns the VIP that it was connected to. Minimum kernel: 5.8.

use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;

use crate::kernel::connect;
use crate::kernel::socket::Family;

#[cgroup_sock_addr(getpeername4)]
fn cg_getpeername4(ctx: SockAddrContext) -> i32 {
    connect::getpeername(&ctx, Family::V4);
    1
}
