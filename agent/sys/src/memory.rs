//! The memory of the process.
#![cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "malloc_trim(3) has no safe form")
)]

/// Returns free memory to the kernel (malloc_trim), which the allocator otherwise keeps.
pub fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number, and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
