//! Writes the steps of a decision to a map, in programs that were loaded to explain; from all others the verifier removes
//! this code, except one load for each step of a new connection.

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use dormouse_ebpf::trace::{STEPS_MAX, Step, StepRecord};

/// 1: steps are written. A constant to the verifier, which removes unreachable code.
#[unsafe(no_mangle)]
static EXPLAIN: u32 = 0;

/// Not pinned: each loaded object has one of its own.
#[map(name = "trace")]
static TRACE: Array<StepRecord> = Array::with_max_entries(STEPS_MAX, 0);

/// Records a step.
#[inline(always)]
pub(crate) fn step(step: Step, first: u64, second: u64) {
    // SAFETY: a static of the program; volatile, so that its value is looked up when it is loaded, not when it is built.
    if unsafe { core::ptr::read_volatile(&raw const EXPLAIN) } != 0 {
        write(step as u32, first, second);
    }
}

// Not inlined, and with numbers only: the callers have no stack left.
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
    if let Some(record) = TRACE.get_ptr_mut(place) {
        let values = [first, second];
        // SAFETY: as above.
        unsafe {
            *record = StepRecord {
                step,
                pad: 0,
                values,
            }
        };
    }
}
