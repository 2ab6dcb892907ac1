//! Counts decisions and keeps what differs, by scenario and by group.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use dormouse_agent_services_samples::recorded::text;

/// Maximum number of differences that are shown in full.
const SHOWN_MAX: usize = 20;

/// The subject of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Topic {
    ServicePort,
    Health,
    Packet,
    Scan,
    Flush,
}

#[derive(Default)]
pub(crate) struct Tally {
    scenarios: usize,
    decisions: usize,
    id: String,
    group: String,
    /// Packets that strict source ranges refuse and kube-proxy admits.
    pub(crate) refused: usize,
    by_group: BTreeMap<String, usize>,
    shown: Vec<String>,
}

impl Tally {
    pub(crate) fn begin(&mut self, scenario: &Value) {
        self.scenarios += 1;
        self.id = text(&scenario["id"]);
        self.group = text(&scenario["group"]);
    }

    /// One decision: ours beside the recorded one.
    pub(crate) fn compare(&mut self, topic: Topic, what: &str, ours: &Value, wanted: &Value) {
        self.decisions += 1;
        if ours == wanted {
            return;
        }
        *self.by_group.entry(self.group.clone()).or_default() += 1;
        if self.shown.len() < SHOWN_MAX {
            let id = &self.id;
            let text = format!("{id}: {topic:?} {what}\n    ours   {ours}\n    wanted {wanted}");
            self.shown.push(text);
        }
    }

    pub(crate) fn decisions(&self) -> usize {
        self.decisions
    }

    pub(crate) fn differences(&self) -> usize {
        self.by_group.values().sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scenarios, decisions) = (self.scenarios, self.decisions);
        let differences = self.differences();
        write!(
            f,
            "core: {scenarios} scenarios, {decisions} decisions, {differences} differences"
        )?;
        for (group, count) in &self.by_group {
            write!(f, "\n  {group}: {count}")?;
        }
        for line in &self.shown {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}
