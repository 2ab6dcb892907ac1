//! Comparison of results with the vectors.

use serde_json::Value;

/// Counts and differences, by kind of scenario.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) counts: dormouse_vectors::Tally,
}

impl Tally {
    /// Begins a scenario.
    pub(crate) fn begin(&mut self, scenario: &Value) {
        self.counts.begin(&scenario["id"], &scenario["kind"]);
    }

    /// Compares one result, value by value: floats within 1e-9, other values exactly.
    pub(crate) fn check(&mut self, at: &Value, expected: &[Value], actual: &[Value]) {
        let same = expected.len() == actual.len()
            && expected
                .iter()
                .zip(actual)
                .all(|(expected, actual)| equal(expected, actual));
        self.counts.count(same, || {
            format!("at {at}: expected {expected:?}, got {actual:?}")
        });
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
