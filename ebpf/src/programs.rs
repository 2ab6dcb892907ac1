//! The kernel programs: one module for each hook.

mod cg_connect4;
mod cg_connect6;
mod cg_egress;
mod cg_getpeername4;
mod cg_getpeername6;
mod cg_recvmsg4;
mod cg_recvmsg6;
mod cg_sendmsg4;
mod cg_sendmsg6;
mod cg_sock_release;
mod logged;
mod measure;
mod measure_xdp;
mod tcx_pod_in;
mod tcx_pod_out;
mod tcx_uplink_in;
mod tcx_uplink_out;
mod xdp_uplink;
