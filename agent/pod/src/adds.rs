//! The ADDs in progress, to which deletions of links yield: a deletion holds the kernel's lock of all links for ten milliseconds
//! or more, and a pod that starts is waited for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of ADDs in progress.
#[derive(Debug, Default)]
pub(crate) struct Adds {
    running: Mutex<usize>,
    ended: Condvar,
}

/// An ADD, until dropped.
pub(crate) struct Running<'a>(&'a Adds);

impl Adds {
    /// Begins an ADD.
    pub(crate) fn begin(&self) -> Running<'_> {
        *self.lock() += 1;
        Running(self)
    }

    /// Waits until no ADD is in progress, at most for `limit`. Returns whether none is.
    pub(crate) fn wait_for_none(&self, limit: Duration) -> bool {
        let waited = self
            .ended
            .wait_timeout_while(self.lock(), limit, |running| *running > 0);
        let (running, _timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        *running == 0
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_waits_for_the_adds_in_progress_and_not_for_ever() {
        let adds = Adds::default();
        assert!(adds.wait_for_none(Duration::ZERO));
        let first = adds.begin();
        assert!(!adds.wait_for_none(Duration::from_millis(1)));
        let second = adds.begin();
        drop(first);
        assert!(!adds.wait_for_none(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| adds.wait_for_none(Duration::from_mins(1)));
            drop(second);
            assert!(waiting.join().unwrap());
        });
    }
}
