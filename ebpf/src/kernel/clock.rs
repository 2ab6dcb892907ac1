//! The kernel's clocks.

use aya_ebpf::helpers::generated::{bpf_jiffies64, bpf_ktime_get_boot_ns};

/// CLOCK_BOOTTIME.
#[inline(always)]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: the helper takes nothing.
    unsafe { bpf_ktime_get_boot_ns() }
}

/// The kernel's ticks since it started. The verifier makes a load of it, while a clock is a call.
#[inline(always)]
pub(crate) fn now_ticks() -> u64 {
    // SAFETY: the helper takes nothing.
    unsafe { bpf_jiffies64() }
}
