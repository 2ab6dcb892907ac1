//! One operation at a time for each attachment: a DEL that overtakes its ADD waits for it.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_agent_ipam::LeaseKey;

/// The attachments that someone works on.
#[derive(Default)]
pub(crate) struct Busy {
    keys: Mutex<HashSet<LeaseKey>>,
    freed: Condvar,
}

/// Ends the work on an attachment when dropped.
pub(crate) struct BusyGuard<'a> {
    busy: &'a Busy,
    key: LeaseKey,
}

impl Busy {
    /// Waits until nobody else works on `key`; none if that takes too long.
    pub(crate) fn enter(&self, key: &LeaseKey, patience: Duration) -> Option<BusyGuard<'_>> {
        let keys = self.lock();
        let waited = self
            .freed
            .wait_timeout_while(keys, patience, |keys| keys.contains(key));
        let (mut keys, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return None;
        }
        keys.insert(key.clone());
        Some(BusyGuard {
            busy: self,
            key: key.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<LeaseKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.busy.lock().remove(&self.key);
        self.busy.freed.notify_all();
    }
}
