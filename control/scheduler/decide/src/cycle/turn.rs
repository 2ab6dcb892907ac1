//! Where the next attempt begins, for an index that decides in the scheduler's place.

use super::{Scheduler, feasible_max};
use crate::profile::Profile;

impl Scheduler {
    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The index of the node at which the next attempt begins.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Lets the next attempt begin at another node.
    pub fn set_start(&mut self, start: usize) {
        self.start = start;
    }

    /// The number of feasible nodes after which no more are looked for.
    pub fn limit(&self, nodes_len: usize) -> usize {
        feasible_max(self.profile.percentage, nodes_len)
    }
}
