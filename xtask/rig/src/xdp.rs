//! Verdicts of XDP programs (`enum xdp_action` of `include/uapi/linux/bpf.h`).

/// `XDP_DROP`.
pub const DROP: u32 = 1;
/// `XDP_PASS`: the packet is left to the kernel.
pub const PASS: u32 = 2;
/// `XDP_TX`: the packet is sent back by the interface that it came by.
pub const TX: u32 = 3;
