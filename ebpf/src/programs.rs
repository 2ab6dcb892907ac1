//! One module a hook, in the order in which a packet may meet them.

mod cg_connect6;
mod cg_getpeername6;
mod cg_recvmsg6;
mod cg_sendmsg6;
mod cg_sock_release;
mod tcx_uplink_in;
mod tcx_uplink_out;
mod xdp_uplink;
