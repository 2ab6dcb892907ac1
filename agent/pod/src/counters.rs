//! Counters of the plugin's requests, by command and result, with durations; for the agent's metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Requests of one command that ended with one code.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestCount {
    /// Number of requests.
    pub count: u64,
    /// Sum of their durations, in seconds.
    pub seconds: f64,
}

/// Counters by command (`ADD`, …) and CNI error code (0 = success).
#[derive(Debug, Default)]
pub struct RequestCounters {
    counts: Mutex<BTreeMap<(&'static str, u32), RequestCount>>,
}

impl RequestCounters {
    /// Counts one request.
    pub fn record(&self, command: &'static str, code: u32, took: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = counts.entry((command, code)).or_default();
        entry.count += 1;
        entry.seconds += took.as_secs_f64();
    }

    /// The current values.
    pub fn snapshot(&self) -> BTreeMap<(&'static str, u32), RequestCount> {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
