//! The state of the fleet stream, written by the node loop and read by the metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dormouse_fleet::Boottime;

/// The state of the fleet stream, written by the node's loop.
#[derive(Debug, Default)]
pub struct FleetState {
    /// Whether the stream has TLS; none: there is no stream.
    secured: Option<bool>,
    connected: AtomicBool,
    granted_at: AtomicU64,
    /// CLOCK_BOOTTIME; 0: entries are used under the node lease only.
    stale_since: AtomicU64,
}

impl FleetState {
    /// The state of a stream that is not open yet, with TLS or without; none: there is no stream.
    pub fn new(secured: Option<bool>) -> Self {
        Self {
            secured,
            ..Self::default()
        }
    }

    /// Whether the stream has TLS; none: there is no stream.
    pub(crate) fn is_secured(&self) -> Option<bool> {
        self.secured
    }

    /// Sets whether the stream is open. Returns the previous state.
    pub fn connected(&self, now: bool) -> bool {
        self.connected.swap(now, Ordering::Relaxed)
    }

    /// Records an applied grant.
    pub fn granted(&self) {
        self.granted_at.store(Boottime::now().0, Ordering::Relaxed);
    }

    /// Sets whether the last entries are used without control and activators.
    pub fn stale(&self, stale: bool) {
        let since = if stale { Boottime::now().0 } else { 0 };
        self.stale_since.store(since, Ordering::Relaxed);
    }

    /// Seconds since the last entries are used without control and activators; 0: they are not.
    pub(crate) fn stale_seconds(&self) -> f64 {
        seconds_since(self.stale_since.load(Ordering::Relaxed))
    }

    /// Whether the stream is open.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Seconds since the last grant; 0 before the first.
    pub(crate) fn lag_seconds(&self) -> f64 {
        seconds_since(self.granted_at.load(Ordering::Relaxed))
    }
}

/// Seconds since a time; 0 if there is none.
fn seconds_since(at: u64) -> f64 {
    match at {
        0 => 0.0,
        at => Boottime::now().since(Boottime(at)).as_secs_f64(),
    }
}
