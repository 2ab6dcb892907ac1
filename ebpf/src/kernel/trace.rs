//! Writes the steps of a decision down, in programs that were loaded to explain; of all others the kernel takes this out
//! when it loads them, but for one load a step of a new connection.

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use dormouse_ebpf::trace::{STEPS_MAX, Step, Told};

/// 1: steps are written down. A constant to the verifier, which takes out what is never reached.
#[unsafe(no_mangle)]
static EXPLAIN: u32 = 0;

/// Not pinned: each loaded object has one of its own.
#[map(name = "trace")]
static TRACE: Array<Told> = Array::with_max_entries(STEPS_MAX, 0);

/// Notes a step.
#[inline(always)]
pub(crate) fn step(step: Step, first: u64, second: u64) {
    // SAFETY: a static of the program; volatile, so that its value is looked up when it is loaded, not when it is built.
    if unsafe { core::ptr::read_volatile(&raw const EXPLAIN) } != 0 {
        write(step as u32, first, second);
    }
}

// A function of its own, with numbers only: the callers have no room on their stacks.
#[inline(never)]
fn write(step: u32, first: u64, second: u64) {
    let Some(count) = TRACE.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: a map value, which lives as long as the program runs; one program at a time explains.
    let place = unsafe {
        (*count).step += 1;
        (*count).step
    };
    if let Some(told) = TRACE.get_ptr_mut(place) {
        let values = [first, second];
        // SAFETY: as above.
        unsafe {
            *told = Told {
                step,
                pad: 0,
                values,
            }
        };
    }
}
