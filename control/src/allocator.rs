//! The allocator of the program.
#![expect(unsafe_code, reason = "mimalloc's options have no safe form")]

use std::ffi::c_long;

use libmimalloc_sys::{mi_option_set_default, mi_option_t};
use mimalloc::MiMalloc;

/// Control allocates on one thread what it frees on another, which costs the C library's allocator a lock.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// `mi_option_purge_delay` of mimalloc 3, which the crate does not name.
const PURGE_DELAY: mi_option_t = 15;
/// Time after which free memory goes back to the kernel, milliseconds. Later allocations look for it, and an idle control makes
/// few: with the default of a second it keeps what its start has used.
const PURGE_DELAY_MS: c_long = 10;

/// Sets the allocator's options, unless the environment does (`MIMALLOC_PURGE_DELAY`). To be called before other threads start.
pub(crate) fn configure() {
    // SAFETY: no other thread reads the options yet.
    unsafe { mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) }
}
