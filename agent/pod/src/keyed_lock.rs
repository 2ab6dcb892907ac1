//! A lock per attachment: a DEL that overtakes its ADD waits for it.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_agent_ipam::LeaseKey;

/// The locked attachments.
#[derive(Default)]
pub(crate) struct KeyedLock {
    keys: Mutex<HashSet<LeaseKey>>,
    freed: Condvar,
}

/// Unlocks the attachment when dropped.
pub(crate) struct KeyGuard<'a> {
    lock: &'a KeyedLock,
    key: LeaseKey,
}

impl KeyedLock {
    /// Waits until no other thread works on `key`; none after `patience`.
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
