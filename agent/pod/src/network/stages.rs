//! Durations of the stages of ADD and DEL, for metrics and log.

use std::time::{Duration, Instant};

use crate::metrics::{Command, Stage, WiringMetrics};

/// The stages of one request. When dropped, also after an error, the duration of each completed stage is recorded.
pub(super) struct Stages<'a> {
    metrics: &'a WiringMetrics,
    command: Command,
    took: Vec<(Stage, Duration)>,
    since: Instant,
}

impl<'a> Stages<'a> {
    /// Starts the first stage.
    pub(super) fn begin(metrics: &'a WiringMetrics, command: Command) -> Self {
        Self {
            metrics,
            command,
            took: Vec::new(),
            since: Instant::now(),
        }
    }

    /// Ends a stage and starts the next. Returns its duration in microseconds.
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
