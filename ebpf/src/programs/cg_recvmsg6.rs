//! recvmsg(2) of an IPv6 UDP socket: reverse NAT of a backend's datagram to the VIP. Minimum kernel: 5.7 (cgroup links).

use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;

use crate::kernel::datagrams;
use crate::kernel::socket::Family;

#[cgroup_sock_addr(recvmsg6)]
fn cg_recvmsg6(ctx: SockAddrContext) -> i32 {
    datagrams::recvmsg(&ctx, Family::V6);
    1
}
