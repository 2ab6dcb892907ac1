//! The commands on data directories: restore a snapshot into a new one, export one as a snapshot.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufReader, BufWriter},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use clap::{Args, Subcommand};
use dormouse_snapshot::{ExportError, ImportError, Integrity};
use dormouse_store::{
    Limits, OpenError, RestoreError, Store,
    durable::{DataDir, Policy},
};
use tracing::info;

/// The end of the help.
const HELP: &str = "\
Flags with the same meaning as etcd's have etcd's names, and each may be a variable instead: ETCD_ and its
name in capitals, such as ETCD_DATA_DIR. Flags of etcd that are not listed are accepted with a warning if
they have no meaning here, and refused with the way out otherwise.

Examples:
  dormouse store --data-dir /var/lib/dormouse/store
  etcdctl --endpoints=http://[::1]:2379 put greeting hello
  curl http://[::1]:2379/health";

/// The store's command.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = HELP)]
pub struct Command {
    /// Without one, the store is run.
    #[command(subcommand)]
    pub action: Option<Action>,
    /// Flags of the store that is run.
    #[command(flatten)]
    pub flags: crate::Flags,
}

/// Commands on data directories of stores that do not run.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// Create a data directory from a snapshot of etcd or of `etcdctl snapshot save`
    Restore {
        /// File of the snapshot
        #[arg(long, value_name = "FILE")]
        snapshot: PathBuf,
        /// Directory to create
        #[arg(long, value_name = "DIRECTORY")]
        data_dir: PathBuf,
        /// Number by which the revision is raised, so that clients see none that they know
        #[arg(long, value_name = "REVISIONS", default_value_t = 1_000_000_000)]
        bump_revision: u32,
        /// Accept a file without a checksum, of the data directory of a stopped etcd
        #[arg(long)]
        skip_hash_check: bool,
    },
    /// Write the state of a data directory as a snapshot that etcd restores
    Export {
        /// Directory of a store that does not run
        #[arg(long, value_name = "DIRECTORY")]
        data_dir: PathBuf,
        /// File to create
        #[arg(long, value_name = "FILE")]
        snapshot: PathBuf,
    },
}

/// An action that failed.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// The file of the snapshot.
    #[error("failed to open the snapshot `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The snapshot cannot be read.
    #[error("failed to read the snapshot")]
    Import(#[from] ImportError),
    /// The data directory cannot be created.
    #[error("failed to restore the snapshot")]
    Restore(#[from] RestoreError),
    /// The data directory is refused.
    #[error("failed to open the data directory `{}`", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: OpenError,
    },
    /// The snapshot cannot be written.
    #[error("failed to write the snapshot")]
    Export(#[from] ExportError),
    /// The end of the run could not be recorded.
    #[error(transparent)]
    Close(#[from] dormouse_store::Error),
}

impl Action {
    /// Runs the action. Blocks.
    pub fn run(self) -> Result<(), ActionError> {
        match self {
            Self::Restore {
                snapshot,
                data_dir,
                bump_revision,
                skip_hash_check,
            } => {
                let integrity = if skip_hash_check {
                    Integrity::Skipped
                } else {
                    Integrity::Checked
                };
                restore((snapshot, integrity), data_dir, bump_revision)
            }
            Self::Export { data_dir, snapshot } => export(data_dir, snapshot),
        }
    }
}

fn restore(
    (path, integrity): (PathBuf, Integrity),
    data_dir: PathBuf,
    raised_by: u32,
) -> Result<(), ActionError> {
    let file = File::open(&path).map_err(|source| ActionError::File { path, source })?;
    let snapshot = dormouse_snapshot::read(BufReader::new(file), integrity)?;
    let data = of(data_dir);
    let revision = Store::restore(&data, &snapshot, raised_by)?;
    info!(keys = snapshot.pairs.len(), revision, path = %data.path.display(), "snapshot restored");
    Ok(())
}

fn export(data_dir: PathBuf, path: PathBuf) -> Result<(), ActionError> {
    let data = of(data_dir);
    let opened = Store::open(Limits::default(), &data);
    let store = opened.map_err(|source| ActionError::Open {
        path: data.path,
        source,
    })?;
    // As etcdctl writes them: a snapshot has all that the store has.
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(&path);
    let file = created.map_err(|source| ActionError::File { path, source })?;
    let file = store.export(|_shape| BufWriter::new(file))?;
    let synced = file.into_inner().map_err(io::IntoInnerError::into_error);
    synced
        .and_then(|file| file.sync_all())
        .map_err(ExportError::from)?;
    Ok(store.close()?)
}

fn of(path: PathBuf) -> DataDir {
    DataDir {
        path,
        policy: Policy::default(),
    }
}
