//! Egress of the cgroup's sockets: redirects or rejects packets of connected sockets whose backend is gone. Minimum kernel:
//! 5.18.

use aya_ebpf::macros::cgroup_skb;
use aya_ebpf::programs::SkBuffContext;

use crate::kernel::stale_backend;

#[cgroup_skb(egress)]
fn cg_egress(ctx: SkBuffContext) -> i32 {
    stale_backend::check(&ctx).into()
}
