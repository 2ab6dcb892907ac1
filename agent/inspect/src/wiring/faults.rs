//! What of a pod address is not as it should be.

use std::time::Duration;

use super::Wired;

/// No ADD or DEL takes so long.
const PATIENCE: Duration = Duration::from_mins(1);

impl Wired {
    /// In words; of its IPv4 address, if it has one: `reached4`: the node knows the way, `known4`: so does the data path.
    pub(super) fn faults(&self, reached4: bool, known4: bool) -> Vec<&'static str> {
        let mut faults = Vec::new();
        let mut fault = |wrong: bool, text| faults.extend(wrong.then_some(text));
        let late = self.held.is_some_and(|held| held > PATIENCE);
        match self.state {
            "live" => {
                fault(
                    self.link.is_none(),
                    "its link is gone: the agent frees it after a while",
                );
                fault(
                    self.link.is_some() && self.bridge.is_none(),
                    "its link is no port of a bridge",
                );
                fault(
                    self.neighbour.is_none(),
                    "the node has no neighbour entry for it",
                );
                fault(
                    self.link.is_some() && !reached4,
                    "the node has no neighbour entry for its IPv4 address",
                );
                fault(self.row == Some(None), "the data path does not know it");
                fault(
                    !known4,
                    "the data path does not know its IPv4 address, and drops what it sends from there",
                );
            }
            "reserved" => fault(
                late,
                "its ADD ended half done: the next start of the agent undoes it",
            ),
            "stray" => fault(
                true,
                "no lease explains it: the next start of the agent heals it",
            ),
            _ => {}
        }
        faults
    }
}
