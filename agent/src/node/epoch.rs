//! The newest control that this node has followed: an earlier one is refused after a restart of the agent too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dormouse_files::{Durability, write_whole};
use dormouse_fleet::node::Epoch;

/// The file in the node's state folder: the epoch as decimal text, and the cluster that it belongs to.
const FILE: &str = "epoch";
const FILE_MODE: u32 = 0o644;

/// The epoch, for the next agent.
#[derive(Debug)]
pub struct EpochFile {
    file: PathBuf,
    written: Epoch,
}

impl EpochFile {
    /// Reads the epoch that the previous agent wrote; the default if there is no file.
    pub fn load(state_dir: &Path) -> Self {
        let file = state_dir.join(FILE);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let mut words = text.split_whitespace();
        let number = words.next().and_then(|word| word.parse().ok());
        let written = Epoch {
            number: number.unwrap_or(0),
            cluster: words.next().unwrap_or_default().to_owned(),
        };
        Self { file, written }
    }

    /// The epoch in the file.
    pub fn epoch(&self) -> &Epoch {
        &self.written
    }

    /// Writes the epoch that the node follows, if it is another one than in the file.
    pub(super) fn write(&mut self, epoch: &Epoch) -> io::Result<()> {
        if *epoch == self.written {
            return Ok(());
        }
        let text = format!("{} {}\n", epoch.number, epoch.cluster);
        write_whole(
            &self.file,
            text.as_bytes(),
            FILE_MODE,
            Durability::PowerFailure,
        )?;
        self.written = epoch.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u64, cluster: &str) -> Epoch {
        let cluster = cluster.to_owned();
        Epoch { cluster, number }
    }

    #[test]
    fn the_next_agent_knows_the_epoch_and_its_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = EpochFile::load(dir.path());
        assert_eq!(*file.epoch(), Epoch::default());
        file.write(&epoch(7, "a")).unwrap();
        assert_eq!(*EpochFile::load(dir.path()).epoch(), epoch(7, "a"));
    }

    #[test]
    fn a_file_without_a_cluster_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "7").unwrap();
        assert_eq!(*EpochFile::load(dir.path()).epoch(), epoch(7, ""));
    }

    #[test]
    fn a_failed_write_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let mut file = EpochFile::load(&state);
        assert!(file.write(&epoch(7, "a")).is_err());
        fs::create_dir(&state).unwrap();
        file.write(&epoch(7, "a")).unwrap();
        assert_eq!(*EpochFile::load(&state).epoch(), epoch(7, "a"));
    }
}
