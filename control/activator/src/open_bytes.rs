//! The memory of open client connections, all apps together: limited, so that clients that send no request cannot use it up.
//! Parked requests have a budget of their own, which connections take nothing from.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limit, and the bytes in use.
#[derive(Debug)]
pub(crate) struct OpenBytes {
    used: AtomicUsize,
    max: usize,
}

/// A part of the memory, until dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    of: Arc<OpenBytes>,
    bytes: usize,
}

impl OpenBytes {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let used = AtomicUsize::new(0);
        Arc::new(Self { used, max })
    }

    /// Claims `bytes`; none if fewer are left.
    pub(crate) fn claim(self: &Arc<Self>, bytes: usize) -> Option<Claim> {
        let within = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .ok()?;
        let of = Arc::clone(self);
        Some(Claim { of, bytes })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_claim_makes_room_for_another() {
        let bytes = OpenBytes::new(10);
        let first = bytes.claim(6);
        assert!(first.is_some());
        assert!(bytes.claim(6).is_none());
        assert!(bytes.claim(usize::MAX).is_none());
        drop(first);
        assert!(bytes.claim(10).is_some());
    }
}
