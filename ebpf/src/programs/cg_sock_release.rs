//! The end of a socket: its connection is counted as closed. Minimum kernel: 5.9.

use aya_ebpf::macros::cgroup_sock;
use aya_ebpf::programs::SockContext;
use dormouse_ebpf::maps::SOCKET_COUNTED;

use crate::kernel::{count, socket, tables};

#[cgroup_sock(sock_release)]
fn cg_sock_release(ctx: SockContext) -> i32 {
    let cookie = socket::cookie(&ctx);
    // SAFETY: the value is copied out; a socket ends once.
    if let Some(&socket) = unsafe { tables::SOCKETS.get(&cookie) }
        && tables::SOCKETS.remove(&cookie).is_ok()
        && socket.kind & SOCKET_COUNTED != 0
    {
        count::closed(socket.slot);
    }
    1
}
