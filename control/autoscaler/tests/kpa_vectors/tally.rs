//! Comparison of results with the vectors, and the counts.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Differences that are printed; further ones are only counted.
const SHOWN_MAX: usize = 10;

/// Counts and differences.
#[derive(Default)]
pub(crate) struct Tally {
    scenario: String,
    kind: String,
    kinds: BTreeMap<String, (usize, usize, usize)>,
    shown: Vec<String>,
}

impl Tally {
    /// Begins a scenario.
    pub(crate) fn begin(&mut self, scenario: &Value) {
        scenario["id"]
            .as_str()
            .unwrap()
            .clone_into(&mut self.scenario);
        scenario["kind"]
            .as_str()
            .unwrap()
            .clone_into(&mut self.kind);
        self.kinds.entry(self.kind.clone()).or_default().0 += 1;
    }

    /// Compares one result, value by value: floats within 1e-9, other values exactly.
    pub(crate) fn check(&mut self, at: &Value, expected: &[Value], actual: &[Value]) {
        let entry = self.kinds.entry(self.kind.clone()).or_default();
        entry.1 += 1;
        let same = expected.len() == actual.len()
            && expected
                .iter()
                .zip(actual)
                .all(|(expected, actual)| equal(expected, actual));
        if !same {
            entry.2 += 1;
            if self.shown.len() < SHOWN_MAX {
                let line = format!(
                    "{} at {at}: expected {expected:?}, got {actual:?}",
                    self.scenario
                );
                self.shown.push(line);
            }
        }
    }

    /// Number of comparisons.
    pub(crate) fn decisions(&self) -> usize {
        self.kinds.values().map(|kind| kind.1).sum()
    }

    /// Number of differences.
    pub(crate) fn differences(&self) -> usize {
        self.kinds.values().map(|kind| kind.2).sum()
    }
}

fn equal(expected: &Value, actual: &Value) -> bool {
    match (expected.as_f64(), actual.as_f64()) {
        (Some(expected), Some(actual)) => {
            (expected - actual).abs() <= 1e-9 * expected.abs().max(1.0)
        }
        _ => expected == actual,
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, (scenarios, decisions, differences)) in &self.kinds {
            writeln!(
                f,
                "  {kind}: {decisions} in {scenarios}, {differences} differ"
            )?;
        }
        for line in &self.shown {
            writeln!(f, "  {line}")?;
        }
        let scenarios: usize = self.kinds.values().map(|kind| kind.0).sum();
        let (decisions, differences) = (self.decisions(), self.differences());
        write!(
            f,
            "{scenarios} scenarios, {decisions} decisions, {differences} differences"
        )
    }
}
