//! The counts of a replay, and the differences that it found.

use std::fmt;

/// The result of one scenario, or the sum of several.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) scenarios: usize,
    /// Comparisons with a recorded value.
    pub(crate) decisions: usize,
    pub(crate) differences: Vec<String>,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.scenarios += other.scenarios;
        self.decisions += other.decisions;
        self.differences.extend(other.differences);
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differences = self.differences.len();
        write!(
            f,
            "{} scenarios, {} decisions, {differences} differences",
            self.scenarios, self.decisions
        )
    }
}
