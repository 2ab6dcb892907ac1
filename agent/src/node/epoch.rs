//! The highest epoch of control that this node has followed: an earlier control is refused after a restart of the agent too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file in the node's state folder: the epoch as decimal text.
const FILE: &str = "epoch";

/// The epoch, for this agent and the next one.
#[derive(Debug)]
pub struct Epoch {
    file: PathBuf,
    highest: u64,
}

impl Epoch {
    /// The epoch that the previous agent wrote; 0 if there is no file.
    pub fn load(state_dir: &Path) -> Self {
        let file = state_dir.join(FILE);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let highest = text.trim().parse().unwrap_or(0);
        Self { file, highest }
    }

    /// The highest epoch.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// The node follows a control with this epoch: writes it to the file if it is a higher one.
    pub(super) fn follow(&mut self, epoch: u64) -> io::Result<()> {
        if epoch <= self.highest {
            return Ok(());
        }
        self.highest = epoch;
        let new = self.file.with_extension("new");
        fs::write(&new, epoch.to_string())?;
        fs::rename(&new, &self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_agent_knows_the_highest_epoch() {
        let dir = tempfile::tempdir().unwrap();
        let mut epoch = Epoch::load(dir.path());
        assert_eq!(epoch.highest(), 0);
        epoch.follow(7).unwrap();
        epoch.follow(6).unwrap();
        assert_eq!(Epoch::load(dir.path()).highest(), 7);
    }
}
