//! The log of clients whose handshake fails: a flood of them does not fill it.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::warn;

/// Shortest interval of lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// The reason of a failed handshake, for people.
#[derive(Clone, Copy)]
pub struct Diagnosis(pub fn(&io::Error) -> String);

impl Default for Diagnosis {
    fn default() -> Self {
        Self(ToString::to_string)
    }
}

impl fmt::Debug for Diagnosis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Diagnosis")
    }
}

/// The clients that were refused.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    diagnosis: Diagnosis,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The time of the last line.
    last: Option<Instant>,
    /// Clients since then.
    omitted: u64,
}

impl Refusals {
    pub(super) fn new(diagnosis: Diagnosis) -> Self {
        Self {
            diagnosis,
            state: Mutex::default(),
        }
    }

    /// A client was refused.
    pub(super) fn log(&self, client: &str, error: &io::Error) {
        if let Some(omitted) = self.state.lock().line(Instant::now()) {
            let reason = (self.diagnosis.0)(error);
            warn!(client, reason, omitted, "a client is refused");
        }
    }
}

impl State {
    /// The clients since the last line; none: it was a moment ago.
    fn line(&mut self, now: Instant) -> Option<u64> {
        if self
            .last
            .is_some_and(|last| now.duration_since(last) < INTERVAL)
        {
            self.omitted += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_a_second_is_logged_with_the_number_of_those_between() {
        let (mut state, began) = (State::default(), Instant::now());
        let mut line = |ms| state.line(began + Duration::from_millis(ms));
        assert_eq!(line(0), Some(0));
        assert_eq!([line(1), line(999)], [None, None]);
        assert_eq!(line(1_000), Some(2));
        assert_eq!(line(5_000), Some(0));
    }
}
