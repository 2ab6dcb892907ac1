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

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: &str = "held";

    fn is_held(error: &&str) -> bool {
        *error == HELD
    }

    #[test]
    fn what_is_held_is_tried_again_until_it_is_free() {
        let mut attempts = 0;
        let done = wait(Duration::MAX, is_held, || {
            attempts += 1;
            if attempts < 4 { Err(HELD) } else { Ok("lock") }
        });
        assert_eq!((done, attempts), (Ok("lock"), 4));
    }

    #[test]
    fn what_is_held_for_longer_than_the_limit_is_an_error() {
        let mut attempts = 0;
        let done: Result<(), _> = wait(Duration::from_millis(20), is_held, || {
            attempts += 1;
            Err(HELD)
        });
        assert_eq!(done, Err(HELD));
        assert!(attempts > 1);
    }

    #[test]
    fn another_error_is_not_tried_again() {
        let mut attempts = 0;
        let done: Result<(), _> = wait(Duration::MAX, is_held, || {
            attempts += 1;
            Err("no such folder")
        });
        assert_eq!((done, attempts), (Err("no such folder"), 1));
    }
}
