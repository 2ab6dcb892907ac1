//! Waiting for a condition that becomes true without the test's help.

use std::time::{Duration, Instant};

/// How long anything may take. Only a failure is this slow.
pub const PATIENCE: Duration = Duration::from_mins(3);

const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Returns once the condition is true; panics with `what` when it is not within [`PATIENCE`].
pub fn wait(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}
