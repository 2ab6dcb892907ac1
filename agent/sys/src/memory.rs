//! The process's memory.
#![cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "malloc_trim(3) has no safe form")
)]

/// Gives memory that is free back to the machine: the allocator by itself keeps all that it ever had.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number, and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
