//! One operation at a time for each attachment: a DEL that overtakes its ADD waits for it.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_agent_ipam::LeaseKey;

/// The attachments that someone works on.
#[derive(Default)]
pub(crate) struct KeyedLock {
    keys: Mutex<HashSet<LeaseKey>>,
    freed: Condvar,
}

/// Ends the work on an attachment when dropped.
pub(crate) struct KeyGuard<'a> {
    lock: &'a KeyedLock,
    key: LeaseKey,
}

impl KeyedLock {
    /// Waits until nobody else works on `key`; none if that takes too long.
    pub(crate) fn enter(&self, key: &LeaseKey, patience: Duration) -> Option<KeyGuard<'_>> {
        let keys = self.lock();
        let waited = self
            .freed
            .wait_timeout_while(keys, patience, |keys| keys.contains(key));
        let (mut keys, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return None;
        }
        keys.insert(key.clone());
        Some(KeyGuard {
            lock: self,
            key: key.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<LeaseKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyGuard<'_> {
    fn drop(&mut self) {
        self.lock.lock().remove(&self.key);
        self.lock.freed.notify_all();
    }
}
