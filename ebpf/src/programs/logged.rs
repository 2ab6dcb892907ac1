//! The packet programs of an agent that logs packets (`--log-packets`): each does what the one without `_log` does, and logs the packets that
//! the filter selects. They are programs of their own, so that the others have no instruction for it.

use aya_ebpf::macros::{classifier, xdp};
use aya_ebpf::programs::{TcContext, XdpContext};
use dormouse_ebpf::packet_log::{
    TCX_POD_IN, TCX_POD_OUT, TCX_UPLINK_IN, TCX_UPLINK_OUT, XDP_UPLINK,
};

use super::{tcx_pod_in, tcx_pod_out, tcx_uplink_in, tcx_uplink_out, xdp_uplink};
use crate::kernel::packet_log::{begin, end};
use crate::kernel::scratch::{ARRIVING, LEAVING};
use crate::kernel::{skb, xdp as driver};

#[xdp(frags)]
fn xdp_uplink_log(ctx: XdpContext) -> u32 {
    let record = begin(&driver::frame(&ctx), ARRIVING);
    let action = xdp_uplink::run(&ctx);
    let facts = (XDP_UPLINK, action as i32);
    end(&ctx, &driver::frame(&ctx), record, facts);
    action
}

/// Runs a program of a classifier, and logs the packet.
macro_rules! classifiers {
    ($($name:ident: $run:path, $user:ident, $number:ident;)*) => { $(
        #[classifier]
        fn $name(ctx: TcContext) -> i32 {
            let record = begin(&skb::frame(&ctx), $user);
            let action = $run(&ctx);
            end(&ctx, &skb::frame(&ctx), record, ($number, action));
            action
        }
    )* };
}

classifiers! {
    tcx_uplink_in_log: tcx_uplink_in::run, ARRIVING, TCX_UPLINK_IN;
    tcx_uplink_out_log: tcx_uplink_out::run, LEAVING, TCX_UPLINK_OUT;
    tcx_pod_in_log: tcx_pod_in::run, ARRIVING, TCX_POD_IN;
    tcx_pod_out_log: tcx_pod_out::run, LEAVING, TCX_POD_OUT;
}
