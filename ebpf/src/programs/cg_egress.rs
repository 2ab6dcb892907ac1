//! What the sockets of a cgroup send: seen once more where a socket's backend is gone. Minimum kernel: 5.18.

use aya_ebpf::macros::cgroup_skb;
use aya_ebpf::programs::SkBuffContext;

use crate::kernel::stale;

#[cgroup_skb(egress)]
fn cg_egress(ctx: SkBuffContext) -> i32 {
    stale::look(&ctx).into()
}
