//! Release of a socket: counts its connection as closed. Minimum kernel: 5.9.

use aya_ebpf::macros::cgroup_sock;
use aya_ebpf::programs::SockContext;

use crate::kernel::connect;

#[cgroup_sock(sock_release)]
fn cg_sock_release(ctx: SockContext) -> i32 {
    connect::release(&ctx);
    1
}
