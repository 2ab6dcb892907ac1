//! Verdicts of tcx programs, as a BPF test run reports them (`include/uapi/linux/bpf.h`).

/// `TCX_NEXT`: the packet is left to the kernel.
pub const NEXT: u32 = u32::MAX;
/// `TCX_PASS`: the packet is delivered by the kernel, past other programs.
pub const PASS: u32 = 0;
/// `TCX_DROP`.
pub const DROP: u32 = 2;
/// `TCX_REDIRECT`: the packet leaves by an interface that the program chose.
pub const REDIRECT: u32 = 7;
