//! Counts decisions and keeps what differs, by scenario and by group.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Maximum number of differences that are shown in full.
const SHOWN_MAX: usize = 20;

/// Counts of one group of scenarios.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    scenarios: usize,
    decisions: usize,
    differences: usize,
}

/// Decisions that were compared with the recorded ones. Its text begins with the line `N scenarios, M decisions, D differences`.
#[derive(Debug, Default)]
pub struct Tally {
    id: String,
    group: String,
    by_group: BTreeMap<String, Counts>,
    shown: Vec<String>,
}

impl Tally {
    /// The next decisions are those of this scenario: its identifier, and the group in which it is counted.
    pub fn begin(&mut self, id: &Value, group: &Value) {
        id.as_str().unwrap().clone_into(&mut self.id);
        group.as_str().unwrap().clone_into(&mut self.group);
        self.counts().scenarios += 1;
    }

    /// One decision: ours beside the recorded one.
    pub fn compare(&mut self, what: &str, ours: &Value, wanted: &Value) {
        self.count(ours == wanted, || {
            format!("{what}\n    ours   {ours}\n    wanted {wanted}")
        });
    }

    /// One decision, and how it differs if it is not the recorded one.
    pub fn count(&mut self, is_same: bool, difference: impl FnOnce() -> String) {
        let counts = self.counts();
        counts.decisions += 1;
        if is_same {
            return;
        }
        counts.differences += 1;
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(format!("{}: {}", self.id, difference()));
        }
    }

    fn counts(&mut self) -> &mut Counts {
        if !self.by_group.contains_key(&self.group) {
            self.by_group.insert(self.group.clone(), Counts::default());
        }
        self.by_group.get_mut(&self.group).unwrap()
    }

    /// The number of decisions.
    pub fn decisions(&self) -> usize {
        self.sum(|counts| counts.decisions)
    }

    /// The number of those that differ.
    pub fn differences(&self) -> usize {
        self.sum(|counts| counts.differences)
    }

    fn sum(&self, of: impl Fn(&Counts) -> usize) -> usize {
        self.by_group.values().map(of).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scenarios = self.sum(|counts| counts.scenarios);
        let (decisions, differences) = (self.decisions(), self.differences());
        write!(
            f,
            "{scenarios} scenarios, {decisions} decisions, {differences} differences"
        )?;
        for (group, counts) in &self.by_group {
            let Counts {
                scenarios,
                decisions,
                differences,
            } = counts;
            write!(
                f,
                "\n  {group}: {decisions} in {scenarios}, {differences} differ"
            )?;
        }
        for text in &self.shown {
            write!(f, "\n  {text}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_counted_by_group_and_shown_with_their_scenario() {
        let mut tally = Tally::default();
        tally.begin(&json!("a/1"), &json!("a"));
        tally.compare("score", &json!(1), &json!(1));
        tally.begin(&json!("b/1"), &json!("b"));
        tally.compare("score", &json!(1), &json!(2));
        assert_eq!((tally.decisions(), tally.differences()), (2, 1));
        let text = "2 scenarios, 2 decisions, 1 differences\n  a: 1 in 1, 0 differ\n  b: 1 in 1, 1 differ\n  \
                    b/1: score\n    ours   1\n    wanted 2";
        assert_eq!(tally.to_string(), text);
    }
}
