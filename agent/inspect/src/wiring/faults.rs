//! Faults of a pod address: differences between journal, kernel and data path.

use std::time::Duration;

use super::Wired;

/// Longer than any ADD or DEL takes.
const PATIENCE: Duration = Duration::from_mins(1);

impl Wired {
    /// The faults, as text. `reached4`: a neighbour entry for the IPv4 address exists; `known4`: a row of the pod table does.
    pub(super) fn faults(&self, reached4: bool, known4: bool) -> Vec<&'static str> {
        let mut faults = Vec::new();
        let mut fault = |wrong: bool, text| faults.extend(wrong.then_some(text));
        let late = self.age.is_some_and(|age| age > PATIENCE);
        match self.state {
            "live" => {
                fault(
                    self.link.is_none(),
                    "no link: the agent will release the address",
                );
                fault(
                    self.link.is_some() && self.bridge.is_none(),
                    "the link is not a port of a bridge",
                );
                fault(
                    self.neighbour.is_none(),
                    "no neighbour entry for the IPv6 address",
                );
                fault(
                    self.link.is_some() && !reached4,
                    "no neighbour entry for the IPv4 address",
                );
                fault(self.row == Some(None), "not in the data path's pod table");
                fault(
                    !known4,
                    "the IPv4 address is not in the data path's pod table: its packets are dropped",
                );
            }
            "reserved" => fault(
                late,
                "an ADD was interrupted: the next start of the agent undoes it",
            ),
            "stray" => fault(
                true,
                "no lease: the next start of the agent removes or repairs it",
            ),
            _ => {}
        }
        faults
    }
}
