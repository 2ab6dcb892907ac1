//! The programs that run in the kernel, one file a hook; on the host this is an empty program, so the workspace builds.

#![cfg_attr(target_arch = "bpf", no_std, no_main)]
// Atomic instructions are written in assembly.
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[cfg(target_arch = "bpf")]
mod kernel;
#[cfg(target_arch = "bpf")]
mod programs;

#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// bpf_csum_diff, bpf_redirect_neigh and others are reserved for programs under this licence.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
