//! Findings of a case, and the number of its checks.

use std::cell::Cell;
use std::fmt::Debug;

/// A case ends at its first finding, which has what was seen.
pub(crate) type Outcome<T = ()> = Result<T, String>;

thread_local! {
    static CHECKS: Cell<usize> = const { Cell::new(0) };
}

/// How many checks this thread has made.
pub(crate) fn made() -> usize {
    CHECKS.get()
}

pub(crate) fn holds(condition: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    CHECKS.set(CHECKS.get() + 1);
    if condition { Ok(()) } else { Err(otherwise()) }
}

pub(crate) fn same<T: PartialEq + Debug>(what: &str, seen: &T, wanted: &T) -> Outcome {
    holds(seen == wanted, || {
        format!("{what}: {seen:?}, not {wanted:?}")
    })
}
