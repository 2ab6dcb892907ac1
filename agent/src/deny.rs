//! The deny list of the node: sources outside whose packets the kernel drops, from commands and from a watched file.
//!
//! The kernel's list outlives the agent, with the ends of its entries. Commands' entries are in the state folder, too, so they
//! survive a boot. What is wrong in the file is logged by line, and the rest of it is in force; a file that cannot be read changes
//! nothing.

pub mod file;
pub mod list;
pub mod message;
pub mod record;
mod watched;

use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse_agent_datapath::{Denied, SharedDatapath, WITHOUT_END};
use dormouse_agent_services::Prefix;
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use list::{List, Now};
use message::{REQUEST_BYTES_MAX, Reply, Request};
use watched::WatchedFile;

/// Time limit for receiving a request, and for sending the reply.
const TALK_DEADLINE: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be accepted, as without a free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the deny list needs.
#[derive(Debug)]
pub struct Config {
    /// The node's state folder.
    pub state_dir: PathBuf,
    /// The file of denied prefixes, if there is one.
    pub file: Option<PathBuf>,
    /// The socket for commands.
    pub listener: UnixListener,
}

/// The deny list, and its sources.
#[derive(Debug)]
pub struct DenyList {
    state_dir: PathBuf,
    file: Option<WatchedFile>,
    listener: UnixListener,
    /// The lock is held by one side at a time: the loop, or the thread that it waits for.
    applied: Arc<Mutex<Applied>>,
}

/// The list in force, and where it is in force.
struct Applied {
    datapath: SharedDatapath,
    list: List,
}

impl std::fmt::Debug for Applied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applied")
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}

impl DenyList {
    /// Reads the record and the file. The list of the previous agent stays in force until [`run`](Self::run).
    pub fn open(config: Config, datapath: &SharedDatapath) -> io::Result<Self> {
        let mut list = List {
            record: record::load(&config.state_dir)?,
            file: Vec::new(),
        };
        let mut file = config.file.map(WatchedFile::open).transpose()?;
        match file.as_mut().map_or(Ok(None), WatchedFile::read) {
            Ok(Some(prefixes)) => list.file = prefixes,
            // It is being written; the end of that is an event.
            Ok(None) if file.is_some() => list.file = former(datapath, &list),
            Ok(None) => {}
            Err(error) => {
                warn!(
                    error,
                    "the denied prefixes of the previous agent stay: the file of --deny-file cannot be used"
                );
                list.file = former(datapath, &list);
            }
        }
        let applied = Applied {
            datapath: Arc::clone(datapath),
            list,
        };
        Ok(Self {
            state_dir: config.state_dir,
            file,
            listener: config.listener,
            applied: Arc::new(Mutex::new(applied)),
        })
    }

    /// Follows commands and the file until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) -> io::Result<()> {
        self.listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(self.listener.try_clone()?)?;
        self.begin().await;
        loop {
            let changed = async {
                match &mut self.file {
                    Some(file) => file.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                accepted = listener.accept() => {
                    let served = match accepted {
                        Ok((stream, _)) => self.serve(stream).await,
                        Err(error) => {
                            tokio::time::sleep(ACCEPT_PAUSE).await;
                            Err(error)
                        }
                    };
                    if let Err(error) = served {
                        warn!(%error, "failed to serve a command about the deny list");
                    }
                }
                () = changed => self.reread().await,
                () = shutdown.cancelled() => return Ok(()),
            }
        }
    }

    /// Puts the list in force, which takes seconds if it has a million prefixes.
    async fn begin(&self) {
        let applied = Arc::clone(&self.applied);
        let done = tokio::task::spawn_blocking(move || applied.lock().apply()).await;
        let done = done.map_err(|error| error.to_string()).flatten();
        if let Err(error) = done {
            error!(
                error,
                "the deny list is not in force: that of the previous agent is"
            );
        }
    }

    /// Puts the file's new content in force.
    async fn reread(&mut self) {
        let Some(mut file) = self.file.take() else {
            return;
        };
        let applied = Arc::clone(&self.applied);
        let reread = tokio::task::spawn_blocking(move || {
            let done = file.read().and_then(|prefixes| match prefixes {
                Some(prefixes) => applied.lock().change(|list| {
                    list.file = prefixes;
                    Ok(())
                }),
                None => Ok(()),
            });
            if let Err(error) = done {
                warn!(
                    error,
                    "the deny list stays as it is: its file cannot be used"
                );
            }
            file
        });
        match reread.await {
            Ok(file) => self.file = Some(file),
            Err(error) => error!(%error, "the file of --deny-file is not followed any more"),
        }
    }

    /// Serves one command.
    async fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        let uid = stream.peer_cred()?.uid();
        let reply = if uid == 0 {
            let received = timeout(TALK_DEADLINE, receive(&mut stream)).await;
            let request = received.map_err(io::Error::from)??;
            let (applied, state_dir) = (Arc::clone(&self.applied), self.state_dir.clone());
            let done =
                tokio::task::spawn_blocking(move || applied.lock().command(&request, &state_dir));
            done.await.map_err(io::Error::other)?
        } else {
            Reply::Refused(format!(
                "the caller has uid {uid}; only root may change the list"
            ))
        };
        let bytes = serde_json::to_vec(&reply)?;
        let sent = timeout(TALK_DEADLINE, stream.write_all(&bytes)).await;
        sent.map_err(io::Error::from)?
    }
}

/// The prefixes of the previous agent's file.
fn former(datapath: &SharedDatapath, list: &List) -> Vec<Prefix> {
    let entries = datapath.deny.entries().unwrap_or_else(|error| {
        warn!(%error, "failed to read the previous agent's deny list");
        Vec::new()
    });
    let is_files =
        |one: &Denied| one.until_ns == WITHOUT_END && !list.record.contains_key(&one.prefix);
    entries
        .into_iter()
        .filter(is_files)
        .map(|one| one.prefix)
        .collect()
}

async fn receive(stream: &mut UnixStream) -> io::Result<Request> {
    let mut bytes = Vec::new();
    stream
        .take(REQUEST_BYTES_MAX)
        .read_to_end(&mut bytes)
        .await?;
    Ok(serde_json::from_slice(&bytes)?)
}

impl Applied {
    fn apply(&self) -> Result<(), String> {
        let denied = self.list.denied(now());
        let replaced = self.datapath.deny.replace(denied);
        replaced.map_err(|error| dormouse_command::error_chain(&error))
    }

    /// Changes the list; on an error it stays as it is.
    fn change(
        &mut self,
        change: impl FnOnce(&mut List) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut changed = self.list.clone();
        change(&mut changed)?;
        let before = std::mem::replace(&mut self.list, changed);
        let applied = self.apply();
        if applied.is_err() {
            self.list = before;
        } else {
            let (commanded, file) = (self.list.record.len(), self.list.file.len());
            info!(commanded, file, "deny list in force");
        }
        applied
    }

    /// A command is in force before it is recorded: a crash in between loses one that was not confirmed.
    fn command(&mut self, request: &Request, state_dir: &std::path::Path) -> Reply {
        let done = self.change(|list| list.apply(request, now()));
        let done = done.and_then(|()| {
            let saved = record::save(state_dir, &self.list.record);
            saved
                .map_err(|error| format!("in force, but not recorded in the state folder: {error}"))
        });
        done.map_or_else(Reply::Refused, |()| Reply::Done)
    }
}

fn now() -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    let boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    Now {
        wall_s: wall.map_or(0, |wall| wall.as_secs()),
        boot_ns: u64::try_from(boot.as_nanos()).unwrap_or(u64::MAX),
    }
}
