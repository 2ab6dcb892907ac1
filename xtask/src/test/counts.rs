//! The sum of the test programs' summaries.

use std::fmt;

/// Number of passed and failed checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Passed checks.
    pub(crate) passed: u64,
    /// Failed checks.
    pub(crate) failed: u64,
}

impl Counts {
    /// Adds a line of output if it is a test program's summary.
    pub(crate) fn add(&mut self, line: &str) {
        let Some(summary) = line.strip_prefix("test result: ") else {
            return;
        };
        self.passed += number_before(summary, " passed");
        self.failed += number_before(summary, " failed");
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// The number right before `word`; 0 if there is none.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text
        .split(word)
        .next()
        .filter(|before| before.len() < text.len());
    let number = before.and_then(|before| before.rsplit(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_summaries_are_added_up() {
        let mut counts = Counts::default();
        let ok = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.05s";
        let bad = "test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s";
        for line in [
            ok,
            "test tests::it ... ok",
            "9 passed, 9 failed",
            bad,
            "test result: what?",
        ] {
            counts.add(line);
        }
        assert_eq!(
            counts,
            Counts {
                passed: 14,
                failed: 5
            }
        );
        assert_eq!(counts.to_string(), "14 passed, 5 failed");
    }
}
