//! connect(2) of an IPv4 socket: DNAT from a VIP to a backend. Minimum kernel: 5.18 (`bpf_set_retval`).

use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;

use crate::kernel::connect;
use crate::kernel::socket::Family;

#[cgroup_sock_addr(connect4)]
fn cg_connect4(ctx: SockAddrContext) -> i32 {
    connect::connect(&ctx, Family::V4)
}
