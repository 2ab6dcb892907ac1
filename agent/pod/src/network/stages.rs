//! Tells the stages of an ADD or a DEL apart, for the metrics and the log.

use std::time::{Duration, Instant};

use crate::metrics::{Command, Stage, WiringMetrics};

/// A request under way. When it ends, well or not, what it took is noted: once for each stage that was done.
pub(super) struct Stages<'a> {
    metrics: &'a WiringMetrics,
    command: Command,
    took: Vec<(Stage, Duration)>,
    since: Instant,
}

impl<'a> Stages<'a> {
    /// The first stage begins.
    pub(super) fn begin(metrics: &'a WiringMetrics, command: Command) -> Self {
        Self {
            metrics,
            command,
            took: Vec::new(),
            since: Instant::now(),
        }
    }

    /// A part ended; the next begins. Returns the microseconds that it took.
    pub(super) fn ended(&mut self, stage: Stage) -> u64 {
        let now = Instant::now();
        let part = now - std::mem::replace(&mut self.since, now);
        match self.took.iter_mut().find(|(known, _)| *known == stage) {
            Some((_, took)) => *took += part,
            None => self.took.push((stage, part)),
        }
        u64::try_from(part.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Drop for Stages<'_> {
    fn drop(&mut self) {
        for (stage, took) in &self.took {
            self.metrics.took(self.command, *stage, *took);
        }
    }
}
