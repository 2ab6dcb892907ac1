//! sendmsg(2) of an unconnected IPv6 UDP socket: DNAT of all its datagrams to a VIP to the same backend.
//! Minimum kernel: 5.18 (`bpf_set_retval`).

use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;

use crate::kernel::datagrams;
use crate::kernel::socket::Family;

#[cgroup_sock_addr(sendmsg6)]
fn cg_sendmsg6(ctx: SockAddrContext) -> i32 {
    datagrams::sendmsg(&ctx, Family::V6)
}
