//! The allocator of control's programs, and of the benchmarks of their parts.
#![expect(
    unsafe_code,
    reason = "an allocator is unsafe, and mimalloc's options have no safe form"
)]

use std::alloc::{GlobalAlloc, Layout};
use std::convert::Infallible;
use std::ffi::c_long;
use std::time::Duration;

use libmimalloc_sys::{
    mi_collect, mi_malloc, mi_option_set_default, mi_option_t, mi_realloc, mi_zalloc,
};
use mimalloc::MiMalloc;

/// The alignment that mimalloc gives every block which is not smaller than it.
const ALIGNED: usize = 16;

/// `mi_option_purge_delay` of mimalloc 3, which the crate does not name.
const PURGE_DELAY: mi_option_t = 15;
/// Time after which free memory goes back to the kernel. What is allocated again before costs neither a system call nor page faults.
const PURGE_DELAY_MS: u16 = 1_000;

/// Sets the allocator's options, unless the environment does (`MIMALLOC_PURGE_DELAY`). To be called before other threads start.
pub fn configure() {
    // SAFETY: no other thread reads the options yet.
    unsafe { mi_option_set_default(PURGE_DELAY, c_long::from(PURGE_DELAY_MS)) }
}

/// Gives free memory back to the kernel, for ever. Otherwise only later allocations look for it, and an idle control makes few: it
/// would keep what its start has used.
pub async fn purge() -> Infallible {
    loop {
        tokio::time::sleep(Duration::from_millis(PURGE_DELAY_MS.into())).await;
        // SAFETY: any thread may call it; it frees no block that is in use.
        unsafe { mi_collect(false) }
    }
}

/// mimalloc: control allocates on one thread what it frees on another, which costs the C library's allocator a lock. mimalloc's crate
/// asks for an alignment at every call: mimalloc 3 then often takes a slow path, on which it allocates more and looks for another block
/// in the end.
#[derive(Clone, Copy, Debug)]
pub struct Allocator;

/// Whether `size` bytes of this alignment are as any other for mimalloc.
fn is_usual(size: usize, align: usize) -> bool {
    align <= ALIGNED && align <= size
}

// SAFETY: mimalloc is an allocator of C, whose blocks have an alignment of `ALIGNED` unless they are smaller; all of them are freed and
// resized alike.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_usual(layout.size(), layout.align()) {
            // SAFETY: every size is valid.
            return unsafe { mi_malloc(layout.size()) }.cast();
        }
        // SAFETY: the caller's layout.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_usual(layout.size(), layout.align()) {
            // SAFETY: every size is valid.
            return unsafe { mi_zalloc(layout.size()) }.cast();
        }
        // SAFETY: the caller's layout.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's block, which is one of mimalloc.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_usual(size, layout.align()) {
            // SAFETY: the caller's block, which is one of mimalloc.
            return unsafe { mi_realloc(block.cast(), size) }.cast();
        }
        // SAFETY: the caller's block and layout.
        unsafe { MiMalloc.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ALLOCATOR: Allocator = Allocator;

    #[test]
    fn blocks_have_their_alignment_and_keep_their_bytes() {
        for align in [1_usize, 2, 4, 8, 16, 32, 64, 128, 4_096] {
            for size in (1..200).chain([1_000, 1_025, 1_300, 4_097, 70_000, 3_000_000]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                check(layout);
            }
        }
    }

    fn check(layout: Layout) {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: its size is not 0.
        let zeroed = unsafe { ALLOCATOR.alloc_zeroed(layout) };
        // SAFETY: so many bytes were allocated, and are zero.
        let bytes = unsafe { std::slice::from_raw_parts(zeroed, size) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        // SAFETY: it is not used any more.
        unsafe { ALLOCATOR.dealloc(zeroed, layout) };
        // SAFETY: its size is not 0.
        let block = unsafe { ALLOCATOR.alloc(layout) };
        // SAFETY: so many bytes were allocated.
        unsafe { block.write_bytes(7, size) };
        // SAFETY: it is a block of this layout.
        let grown = unsafe { ALLOCATOR.realloc(block, layout, 3 * size) };
        assert!(
            [zeroed, block, grown]
                .iter()
                .all(|block| block.addr().is_multiple_of(align))
        );
        // SAFETY: the first bytes are those of the block before.
        let bytes = unsafe { std::slice::from_raw_parts(grown, size) };
        assert!(bytes.iter().all(|byte| *byte == 7));
        let layout = Layout::from_size_align(3 * size, align).unwrap();
        // SAFETY: it is not used any more.
        unsafe { ALLOCATOR.dealloc(grown, layout) };
    }
}
