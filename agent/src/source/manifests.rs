//! A folder of Kubernetes manifests (Services, EndpointSlices, Nodes), the source of objects for a node without an API server.
//!
//! Files `*.yaml`, `*.yml` and `*.json` directly in the folder are read, except hidden ones. A symbolic link is read as its
//! target; a change is seen when the link is replaced (as kubelet does with `..data`), not when only the target changes. A
//! file is read when its writer has closed it, or when it was moved into the folder.
//!
//! A mistake loses no objects: the objects of a file that cannot be read stay, and so do those of a deleted folder. If two
//! files describe the same object, the first file by name wins.
//!
//! Objects are passed on and not stored, because a large cluster's are gigabytes; those of a large folder come in batches. So
//! when a file loses an object that another file describes too, that other file is read again.
//!
//! Reading order: the output ([`Batch`], [`Problem`]), parsing (`text`), the merge of all files (`folder`), the
//! selection of files to read (`look`), and the trigger (`watch`, [`Manifests`]).

mod folder;
mod look;
mod problem;
mod text;
pub(crate) mod watch;

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

pub use problem::{ManifestsError, Problem};

use crate::source::object::Change;
use look::{Look, Looker};

/// Changes of several files are processed together if the pauses between them are not longer.
const QUIET: Duration = Duration::from_millis(5);

/// Maximum delay for a folder that changes all the time.
const UNREST_MAX: Duration = Duration::from_millis(100);

const _: () = assert!(QUIET.as_millis() < UNREST_MAX.as_millis());

/// The changes of one look at the folder, or a part of them: a large folder's objects are gigabytes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Batch {
    /// The changed objects, each once: Nodes, then Services, then EndpointSlices, each by namespace and name.
    pub changes: Vec<Change>,
    /// The problems, each reported when it appears, and again when its file is read again and still has it.
    pub problems: Vec<Problem>,
    /// More batches of the same look follow; only with the last one is it complete. An object that moved to a file in a later
    /// batch is deleted first, and then applied.
    pub more: bool,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.problems.is_empty()
    }
}

/// Times of the first and the last change that were not processed yet.
#[derive(Clone, Copy, Debug)]
struct Unrest {
    first: Instant,
    last: Instant,
}

/// A watched folder of manifests.
#[derive(Debug)]
pub struct Manifests {
    /// Shared with the reading thread; the lock is never contended, because one side waits for the other.
    looker: Arc<Mutex<Looker>>,
    /// Created at the first wait, inside the async runtime.
    events: Option<AsyncFd<OwnedFd>>,
    unrest: Option<Unrest>,
    looking: Option<JoinHandle<Look>>,
    /// Whether more batches of a look follow.
    is_midway: bool,
    /// Whether the watch failed, which is reported once.
    is_blind: bool,
}

impl Manifests {
    /// Opens the folder and starts to read it; it is complete with the first batch without [`Batch::more`]. Blocks until the
    /// first batch is read.
    ///
    /// Fails if the folder does not exist or cannot be watched; problems of files are in the batch.
    pub fn open(folder: &Path) -> Result<(Self, Batch), ManifestsError> {
        let (looker, look) = Looker::open(folder)?;
        let mut manifests = Self {
            looker: Arc::new(Mutex::new(looker)),
            events: None,
            unrest: None,
            looking: None,
            is_midway: look.batch.more,
            is_blind: false,
        };
        if look.again {
            manifests.stir();
        }
        Ok((manifests, look.batch))
    }

    /// The next batch with changes or problems, or the last one of a look. Cancel safe: a started look continues with the next
    /// call.
    pub async fn next(&mut self) -> Batch {
        loop {
            let was_midway = self.is_midway;
            let batch = match &mut self.looking {
                Some(looking) => {
                    let looked = looking.await.map_err(io::Error::other);
                    self.looking = None;
                    self.looked(looked)
                }
                None if was_midway => self.begin(),
                None => match self.wait().await {
                    Ok(()) => self.begin(),
                    Err(error) => self.blind(&error),
                },
            };
            if !batch.is_empty() || was_midway && !self.is_midway {
                return batch;
            }
        }
    }

    /// Waits until the folder has changed, and then has not changed for [`QUIET`].
    async fn wait(&mut self) -> io::Result<()> {
        loop {
            let due = self.unrest.map(Unrest::due);
            let rest = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            if self.is_blind {
                rest.await;
                return Ok(());
            }
            let events = self.watched()?;
            tokio::select! {
                () = rest => return Ok(()),
                ready = events.readable() => ready?.clear_ready(),
            }
            // Readiness is cleared before reading: later events wake again.
            if self.looker.lock().events()?.look {
                self.stir();
            }
        }
    }

    fn watched(&mut self) -> io::Result<&AsyncFd<OwnedFd>> {
        let events = match self.events.take() {
            Some(events) => events,
            None => dormouse_agent_sys::readiness::watch(self.looker.lock().descriptor()?)?,
        };
        Ok(self.events.insert(events))
    }

    fn stir(&mut self) {
        let now = Instant::now();
        let first = self.unrest.map_or(now, |unrest| unrest.first);
        self.unrest = Some(Unrest { first, last: now });
    }

    /// Starts a look or continues it, on a blocking thread.
    fn begin(&mut self) -> Batch {
        if !self.is_midway {
            self.unrest = None;
        }
        let looker = Arc::clone(&self.looker);
        self.looking = Some(tokio::task::spawn_blocking(move || looker.lock().look()));
        Batch::default()
    }

    fn looked(&mut self, looked: io::Result<Look>) -> Batch {
        match looked {
            Ok(look) => {
                if look.again {
                    self.stir();
                }
                self.is_midway = look.batch.more;
                look.batch
            }
            Err(error) => self.blind(&error),
        }
    }

    /// Reports that the watch failed. A last look finds the changes before.
    fn blind(&mut self, error: &io::Error) -> Batch {
        self.is_blind = true;
        self.is_midway = false;
        let problem = Problem::Blind {
            folder: self.looker.lock().name(),
            what: error.to_string(),
        };
        Batch {
            problems: vec![problem],
            ..Batch::default()
        }
    }
}

impl Unrest {
    fn due(self) -> Instant {
        (self.last + QUIET).min(self.first + UNREST_MAX)
    }
}

#[cfg(test)]
mod tests;
