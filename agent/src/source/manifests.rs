//! A folder of Kubernetes manifests as the source of Services, EndpointSlices and Nodes, for a node without an
//! apiserver.
//!
//! Files `*.yaml`, `*.yml` and `*.json` that are not hidden count, in that folder and not below it; a symbolic link
//! counts as the file that it leads to, and a change is seen when the link changes (as kubelet's `..data` does), not when
//! only the file behind it does. A file is read when its writer has closed it or it was moved into place.
//!
//! Nothing is lost by a mistake: what a file that cannot be read described stays as it was, and so does what a folder
//! that is gone described. Of two descriptions of one object the one in the file that is first by name counts.
//!
//! Objects are handed over and not kept, as a large cluster's are gigabytes; a large folder's come in parts. So when a file loses an object that another
//! file describes too, that other file is read again.
//!
//! Reading order: what comes out ([`Batch`], [`Change`], [`Problem`]), how text is read (`text`), what files say together
//! (`folder`), which of them to read (`look`), and when (`watch`, [`Manifests`]).

mod folder;
mod look;
mod object;
mod problem;
mod text;
mod watch;

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

pub use object::{Change, Object};
pub use problem::{ManifestsError, Problem};

use look::{Look, Looker};

/// A change of several files counts as one if no two of its steps are further apart.
const QUIET: Duration = Duration::from_millis(5);

/// A folder that never comes to rest is looked at this often all the same.
const UNREST_MAX: Duration = Duration::from_millis(100);

const _: () = assert!(QUIET.as_millis() < UNREST_MAX.as_millis());

/// What one look at the folder changed, or a part of it: a large folder's objects are gigabytes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Batch {
    /// The objects that differ, each once: Nodes, then Services, then EndpointSlices, each by namespace and name.
    pub changes: Vec<Change>,
    /// What has to be mended; each is told when it arises, and again when its file was read again and it is still there.
    pub problems: Vec<Problem>,
    /// The same look goes on in the next batch: only with the last one is it whole. An object that went to a file which
    /// comes later is deleted, and applied then.
    pub more: bool,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.problems.is_empty()
    }
}

/// When to look.
#[derive(Clone, Copy, Debug)]
struct Unrest {
    first: Instant,
    last: Instant,
}

/// A folder of manifests, watched.
#[derive(Debug)]
pub struct Manifests {
    /// Shared with the thread that looks: nobody waits for the lock, as one looks only while the other waits.
    looker: Arc<Mutex<Looker>>,
    /// Made at the first wait, which is where a runtime is.
    heard: Option<AsyncFd<OwnedFd>>,
    unrest: Option<Unrest>,
    looking: Option<JoinHandle<Look>>,
    /// Whether more of a look is to come.
    is_midway: bool,
    /// Whether the watch failed, and it was told.
    is_blind: bool,
}

impl Manifests {
    /// Opens the folder and begins to read it: with the first batch that has no [`Batch::more`] all of it is told. Blocks
    /// as long as the first part takes.
    ///
    /// Fails if the folder is not there or cannot be watched; what is wrong with files is told in the batch.
    pub fn open(folder: &Path) -> Result<(Self, Batch), ManifestsError> {
        let (looker, look) = Looker::open(folder)?;
        let mut manifests = Self {
            looker: Arc::new(Mutex::new(looker)),
            heard: None,
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

    /// The next batch that says something, if only that there is no more. Cancel safe: whatever has begun goes on when
    /// asked again.
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

    /// Waits until the folder has changed and come to rest.
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
            let heard = self.watched()?;
            tokio::select! {
                () = rest => return Ok(()),
                ready = heard.readable() => ready?.clear_ready(),
            }
            // What comes from here on wakes again; what came before is heard now.
            if self.looker.lock().hear()?.look {
                self.stir();
            }
        }
    }

    fn watched(&mut self) -> io::Result<&AsyncFd<OwnedFd>> {
        let heard = match self.heard.take() {
            Some(heard) => heard,
            None => dormouse_agent_sys::readiness::watch(self.looker.lock().descriptor()?)?,
        };
        Ok(self.heard.insert(heard))
    }

    fn stir(&mut self) {
        let now = Instant::now();
        let first = self.unrest.map_or(now, |unrest| unrest.first);
        self.unrest = Some(Unrest { first, last: now });
    }

    /// Begins a look or goes on with it, on a thread that may block.
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

    /// Tells that changes are not seen any more. A last look shows what came before.
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
