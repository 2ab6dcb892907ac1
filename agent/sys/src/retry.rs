//! Retries for resources of a killed process: until a child that it has just forked has called exec, that child holds the
//! same locks and sockets.

use std::thread;
use std::time::{Duration, Instant};

/// Time limit for such a child.
pub const INSTANT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// Calls `attempt` until it does not fail with an error of `is_held`, or until `limit` is over.
pub fn wait<T, E>(
    limit: Duration,
    is_held: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_held(&error) && began.elapsed() < limit => thread::sleep(PAUSE),
            done => return done,
        }
    }
}
