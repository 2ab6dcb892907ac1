//! Adds up what the test programs say about themselves.

use std::fmt;

/// How many checks passed and failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Those that passed.
    pub(crate) passed: u64,
    /// Those that failed.
    pub(crate) failed: u64,
}

impl Counts {
    /// Adds one line of output, if it is a test program's summary.
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

/// The number that stands right before `word`, or nothing of it.
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
    fn summaries_are_added_up_and_other_lines_are_not() {
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
