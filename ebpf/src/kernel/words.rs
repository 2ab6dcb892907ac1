//! Values on the stack that are cleared by whole words. The compiler clears bytes in a loop, which takes longer than all else
//! that many packets need.

use core::mem::MaybeUninit;

/// A value whose words are aligned on the stack, as the verifier requires.
#[repr(C, align(8))]
pub(crate) struct Words<T>(pub(crate) T);

/// Clears a value, which stays where it is: the optimiser would clear a copy by a call.
///
/// # Safety
///
/// All bytes zero must be a valid value of the type.
#[inline(always)]
pub(crate) unsafe fn zero<T>(value: &mut MaybeUninit<Words<T>>) -> &mut T {
    let words = value.as_mut_ptr().cast::<u64>();
    let mut at = 0;
    while at < size_of::<Words<T>>() / size_of::<u64>() {
        // SAFETY: inside the value, whose size is a multiple of a word's. Volatile, so that these stores are no call either.
        unsafe { words.add(at).write_volatile(0) };
        at += 1;
    }
    // SAFETY: all zero is valid by the caller's word.
    &mut unsafe { value.assume_init_mut() }.0
}
