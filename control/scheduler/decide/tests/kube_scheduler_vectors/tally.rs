//! Counts decisions and keeps what differs, by scenario and by group.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Maximum number of differences that are shown in full.
const SHOWN_MAX: usize = 12;

#[derive(Default)]
pub(crate) struct Tally {
    scenarios: usize,
    decisions: usize,
    id: String,
    group: String,
    /// Scenarios, decisions and differences by group.
    by_group: BTreeMap<String, (usize, usize, usize)>,
    shown: Vec<String>,
}

impl Tally {
    pub(crate) fn begin(&mut self, scenario: &Value) {
        self.scenarios += 1;
        self.id = text(&scenario["id"]);
        self.group = text(&scenario["group"]);
        self.by_group.entry(self.group.clone()).or_default().0 += 1;
    }

    /// One decision: ours beside the recorded one.
    pub(crate) fn compare(&mut self, what: &str, ours: &Value, wanted: &Value) {
        self.decisions += 1;
        let counts = self.by_group.entry(self.group.clone()).or_default();
        counts.1 += 1;
        if ours == wanted {
            return;
        }
        counts.2 += 1;
        if self.shown.len() < SHOWN_MAX {
            let id = &self.id;
            let text = format!("{id}: {what}\n    ours   {ours}\n    wanted {wanted}");
            self.shown.push(text);
        }
    }

    pub(crate) fn decisions(&self) -> usize {
        self.decisions
    }

    pub(crate) fn differences(&self) -> usize {
        self.by_group.values().map(|(_, _, count)| count).sum()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scenarios, decisions) = (self.scenarios, self.decisions);
        let differences = self.differences();
        write!(
            f,
            "{scenarios} scenarios, {decisions} decisions, {differences} differences"
        )?;
        for (group, (scenarios, decisions, differences)) in &self.by_group {
            let counts = format!("{scenarios} scenarios, {decisions} decisions");
            write!(f, "\n  {group}: {counts}, {differences} differences")?;
        }
        for line in &self.shown {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}
