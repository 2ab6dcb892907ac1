//! Atomic instructions on words of maps (Linux 5.12), in assembly because the compiler has none for this target.

use core::arch::asm;

/// Adds to a word.
///
/// # Safety
/// `word` is an aligned word of a map value.
#[inline(always)]
pub(crate) unsafe fn add(word: *mut u64, by: u64) {
    // SAFETY: one instruction on a word that the caller vouches for.
    unsafe { asm!("lock *(u64 *)({word} + 0) += {by}", word = in(reg) word, by = in(reg) by) }
}

/// Adds to a word and returns what it was.
///
/// # Safety
/// `word` is an aligned word of a map value.
#[inline(always)]
pub(crate) unsafe fn fetch_add(word: *mut u64, by: u64) -> u64 {
    let mut by = by;
    // SAFETY: one instruction on a word that the caller vouches for.
    unsafe {
        asm!("{by} = atomic_fetch_add((u64 *)({word} + 0), {by})", word = in(reg) word, by = inout(reg) by)
    }
    by
}

/// Adds one to a 32-bit half of a word.
///
/// # Safety
/// `half` is an aligned half of a word of a map value.
#[inline(always)]
pub(crate) unsafe fn increment(half: *mut u32) {
    // SAFETY: one instruction on half a word that the caller vouches for.
    unsafe { asm!("lock *(u32 *)({half} + 0) += {one}", half = in(reg) half, one = in(wreg) 1_u32) }
}

/// Sets bits of a word.
///
/// # Safety
/// `word` is an aligned word of a map value.
#[inline(always)]
pub(crate) unsafe fn set(word: *mut u64, bits: u64) {
    // SAFETY: one instruction on a word that the caller vouches for.
    unsafe { asm!("lock *(u64 *)({word} + 0) |= {bits}", word = in(reg) word, bits = in(reg) bits) }
}

/// Replaces a word and returns what it was.
///
/// # Safety
/// `word` is an aligned word of a map value.
#[inline(always)]
pub(crate) unsafe fn swap(word: *mut u64, value: u64) -> u64 {
    let mut value = value;
    // SAFETY: one instruction on a word that the caller vouches for.
    unsafe {
        asm!("{value} = xchg_64({word} + 0, {value})", word = in(reg) word, value = inout(reg) value)
    }
    value
}

/// Compares a word with `before` and, if equal, replaces it; false if it has another value.
///
/// # Safety
/// `word` is an aligned word of a map value.
#[inline(always)]
pub(crate) unsafe fn replace(word: *mut u64, before: u64, after: u64) -> bool {
    let mut found = before;
    // SAFETY: one instruction on a word that the caller vouches for.
    unsafe {
        asm!("r0 = cmpxchg_64({word} + 0, r0, {after})", word = in(reg) word, after = in(reg) after, inout("r0") found)
    }
    found == before
}
