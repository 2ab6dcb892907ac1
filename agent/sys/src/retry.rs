//! What a process that was killed still holds for an instant: a child of its that has not yet become its program has the
//! same locks and sockets.

use std::thread;
use std::time::{Duration, Instant};

/// How long what a killed process held may stay so.
pub const INSTANT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// Tries again until nobody holds it, for so long as `limit`.
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
