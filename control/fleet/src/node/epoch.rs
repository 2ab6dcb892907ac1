//! The epoch of control that a node follows.

use super::step::StreamError;

/// The newest control that a node has followed: an earlier control of the same cluster is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Identifier of the cluster; empty: unknown.
    pub cluster: String,
    /// The highest epoch of the cluster's controls; 0: none was followed.
    pub number: u64,
}

impl Epoch {
    /// Follows a control of the cluster. Epochs of two clusters cannot be compared: that of another one begins from nothing.
    pub(super) fn enter(&mut self, cluster: &str) {
        if !self.cluster.is_empty() && self.cluster != cluster {
            self.number = 0;
        }
        cluster.clone_into(&mut self.cluster);
    }

    /// Follows the control with this epoch, unless a newer one is known.
    pub(super) fn follow(&mut self, number: u64) -> Result<(), StreamError> {
        if number < self.number {
            return Err(StreamError::EpochOld {
                known: self.number,
                got: number,
            });
        }
        self.number = number;
        Ok(())
    }
}
