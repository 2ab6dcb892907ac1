//! The files of a data directory, by which a kill hits the middle of a rotation or of a snapshot.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

/// The interval at which answers are counted.
const INTERVAL: Duration = Duration::from_millis(2);

/// The kind of moment at which a store is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MomentKind {
    /// After a number of answers.
    Answers,
    /// When there is a new segment.
    Rotation,
    /// When there is an incomplete snapshot.
    Snapshot,
}

/// A moment at which a store is killed, as seen in its files.
pub(crate) struct Moment {
    kind: MomentKind,
    segments: BTreeSet<String>,
}

impl Moment {
    /// The next moment of a kind, from now on.
    pub(crate) fn next(kind: MomentKind, folder: &Path) -> Self {
        Self {
            kind,
            segments: segment_names(folder),
        }
    }

    /// Returns when the files may have changed: an incomplete snapshot exists for about a millisecond.
    pub(crate) async fn pause(&self) {
        match self.kind {
            MomentKind::Answers => tokio::time::sleep(INTERVAL).await,
            MomentKind::Rotation | MomentKind::Snapshot => tokio::task::yield_now().await,
        }
    }

    /// Whether the files show that the moment is there.
    pub(crate) fn has_come(&self, folder: &Path) -> bool {
        match self.kind {
            MomentKind::Answers => false,
            MomentKind::Rotation => !segment_names(folder).is_subset(&self.segments),
            MomentKind::Snapshot => !names_with(folder, ".tmp").is_empty(),
        }
    }
}

/// The names of the segments of the journal.
pub(crate) fn segment_names(folder: &Path) -> BTreeSet<String> {
    names_with(folder, ".wal")
}

/// The names of the complete snapshots.
pub(crate) fn snapshot_names(folder: &Path) -> BTreeSet<String> {
    names_with(folder, ".snap")
}

fn names_with(folder: &Path, suffix: &str) -> BTreeSet<String> {
    let files = fs::read_dir(folder).unwrap();
    let names = files.filter_map(|file| file.unwrap().file_name().into_string().ok());
    names.filter(|name| name.ends_with(suffix)).collect()
}
