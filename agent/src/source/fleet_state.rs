//! The state of the fleet stream, written by the node loop and read by the metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dormouse_fleet::Boottime;

/// The state of the fleet stream, written by the node's loop.
#[derive(Debug, Default)]
pub struct FleetState {
    connected: AtomicBool,
    granted_at: AtomicU64,
}

impl FleetState {
    /// Sets whether the stream is open. Returns the previous state.
    pub fn connected(&self, now: bool) -> bool {
        self.connected.swap(now, Ordering::Relaxed)
    }

    /// Records an applied grant.
    pub fn granted(&self) {
        self.granted_at.store(Boottime::now().0, Ordering::Relaxed);
    }

    /// Whether the stream is open.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Seconds since the last grant; 0 before the first.
    pub(crate) fn lag_seconds(&self) -> f64 {
        match self.granted_at.load(Ordering::Relaxed) {
            0 => 0.0,
            at => Boottime::now().since(Boottime(at)).as_secs_f64(),
        }
    }
}
