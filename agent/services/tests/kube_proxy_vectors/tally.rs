//! Counts decisions and keeps what differs.

use serde_json::Value;

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
    pub(crate) counts: dormouse_vectors::Tally,
    /// Packets that strict source ranges refuse and kube-proxy admits.
    pub(crate) refused: usize,
}

impl Tally {
    pub(crate) fn begin(&mut self, scenario: &Value) {
        self.counts.begin(&scenario["id"], &scenario["group"]);
    }

    /// One decision: ours beside the recorded one.
    pub(crate) fn compare(&mut self, topic: Topic, what: &str, ours: &Value, wanted: &Value) {
        self.counts.count(ours == wanted, || {
            format!("{topic:?} {what}\n    ours   {ours}\n    wanted {wanted}")
        });
    }
}
