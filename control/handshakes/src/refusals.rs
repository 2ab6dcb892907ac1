//! The log of clients that are refused: a flood of them does not fill it.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

/// Shortest interval of lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// The clients that were refused.
#[derive(Debug, Default)]
pub struct Refusals {
    /// The time of the last line.
    last: Option<Instant>,
    /// Clients since then.
    omitted: u64,
}

impl Refusals {
    /// A client was refused.
    pub fn log(&mut self, client: &str, reason: &str) {
        if let Some(omitted) = self.next_line() {
            warn!(client, reason, omitted, "a client is refused");
        }
    }

    /// Whether a client that is refused now is to be logged: with the number of those since the last line that were not.
    pub fn next_line(&mut self) -> Option<u64> {
        self.line(Instant::now())
    }

    /// The clients since the last line; none: it was a moment ago.
    fn line(&mut self, now: Instant) -> Option<u64> {
        let is_recent = |last| now.duration_since(last) < INTERVAL;
        if self.last.is_some_and(is_recent) {
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
        let (mut refusals, began) = (Refusals::default(), Instant::now());
        let mut line = |ms| refusals.line(began + Duration::from_millis(ms));
        assert_eq!(line(0), Some(0));
        assert_eq!([line(1), line(999)], [None, None]);
        assert_eq!(line(1_000), Some(2));
        assert_eq!(line(5_000), Some(0));
    }
}
