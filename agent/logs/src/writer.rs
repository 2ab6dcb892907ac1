//! The writer: reads the FIFOs of all runs and appends to their files. One process per node, on one thread: a pod that writes much
//! waits for its turn, as its FIFO is full, and the others have theirs.

mod shelf;

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use dormouse_agent_sys::readiness::watch;
use jiff::Timestamp;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::AsyncReadExt as _;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::warn;

use crate::folder::Folder;
use crate::name::{Kind, Run, parse};
use crate::record::{self, Stream};
use crate::retention::Limits;
use shelf::Shelf;

/// Bytes that are read from a pod at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// Bytes per second that are written for a pod; above, it waits.
const POD_BYTES_PER_SECOND: u32 = 8 << 20;
/// Pause before a FIFO that cannot be opened, as without a free descriptor, is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Interval at which a folder that cannot be watched is listed.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// Interval at which runs are removed whose time is over.
const TIDY_EVERY: Duration = Duration::from_mins(1);

/// Writes the logs of all runs that begin in the folder, and of those that had begun, as long as it is polled. It may be dropped, or
/// its process killed, at any time: another one continues.
pub async fn run(folder: Folder, limits: Limits) -> io::Result<()> {
    LocalSet::new().run_until(write_all(folder, limits)).await
}

async fn write_all(folder: Folder, limits: Limits) -> io::Result<()> {
    // Watched before it is listed: a run is noticed twice rather than missed.
    let watched = watch_folder(&folder);
    if let Err(error) = &watched {
        warn!(%error, "the folder of logs cannot be watched: it is listed once a second");
    }
    let mut list = interval(LIST_EVERY);
    list.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let shelf = Rc::new(RefCell::new(Shelf::open(folder.clone(), limits)?));
    begin_all(&folder, &shelf)?;
    let mut tidy = interval(TIDY_EVERY);
    tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            inotify = changed(&watched) => begin_new(inotify?, &folder, &shelf)?,
            _ = list.tick(), if watched.is_err() => begin_all(&folder, &shelf)?,
            _ = tidy.tick() => shelf.borrow_mut().tidy(SystemTime::now()),
        }
    }
}

/// The events of the folder, and a descriptor that is readable when there are some.
type Watched = (Inotify, AsyncFd<OwnedFd>);

fn watch_folder(folder: &Folder) -> io::Result<Watched> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    inotify.add_watch(folder.path(), AddWatchFlags::IN_MOVED_TO)?;
    let events = watch(inotify.as_fd().try_clone_to_owned()?)?;
    Ok((inotify, events))
}

/// Resolves when there are events; never without a watch.
async fn changed(watched: &io::Result<Watched>) -> io::Result<&Inotify> {
    match watched {
        Ok((inotify, events)) => {
            events.readable().await?.clear_ready();
            Ok(inotify)
        }
        Err(_unwatched) => std::future::pending().await,
    }
}

/// Begins the runs that had begun before.
fn begin_all(folder: &Folder, shelf: &Rc<RefCell<Shelf>>) -> io::Result<()> {
    for run in folder.runs()? {
        begin(run, folder, shelf);
    }
    Ok(())
}

/// Begins the runs of the events.
fn begin_new(inotify: &Inotify, folder: &Folder, shelf: &Rc<RefCell<Shelf>>) -> io::Result<()> {
    // To the end: one read returns some of the events only, and readiness is not reported again for the others.
    loop {
        let events = match inotify.read_events() {
            Err(Errno::EAGAIN) => return Ok(()),
            Err(Errno::EINTR) => continue,
            events => events?,
        };
        for event in events {
            if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                begin_all(folder, shelf)?;
            }
            let name = event.name.unwrap_or_default();
            if let Some((run, Kind::Meta)) = name.to_str().and_then(parse) {
                begin(run, folder, shelf);
            }
        }
    }
}

/// Starts the task of a run, unless it has one or has ended.
fn begin(run: Run, folder: &Folder, shelf: &Rc<RefCell<Shelf>>) {
    if folder.has_ended(&run) || !shelf.borrow_mut().begin(&run) {
        return;
    }
    let (folder, shelf) = (folder.clone(), Rc::clone(shelf));
    spawn_local(async move {
        let fifos = [
            (Kind::Stdout, Stream::Stdout),
            (Kind::Stderr, Stream::Stderr),
        ];
        let mut open = Vec::new();
        for (kind, stream) in fifos {
            let path = folder.file(&run, kind);
            if let Some(file) = open_fifo(&path).await {
                open.push((path, file, stream));
            }
        }
        // Its file says to the agent that the FIFOs are open.
        let log = Log::open(run.clone(), Rc::clone(&shelf));
        let mut copies = JoinSet::new();
        for (path, file, stream) in open {
            copies.spawn_local(copy(path, file, stream, Rc::clone(&log)));
        }
        while copies.join_next().await.is_some() {}
        shelf.borrow_mut().end(&run, SystemTime::now());
    });
}

/// Opens a FIFO; `None` if its output has ended before.
async fn open_fifo(path: &Path) -> Option<File> {
    let mut options = File::options();
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    loop {
        match options.open(path) {
            Ok(file) => return Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                warn!(path = %path.display(), %error, "failed to open a pod's output; retrying");
                sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Copies a FIFO to the log until all processes have closed it, then removes it.
async fn copy(path: PathBuf, file: File, stream: Stream, log: Rc<RefCell<Log>>) {
    let mut open = Some(file);
    while let Some(file) = open {
        let Err(error) = copy_all(file, stream, &log).await else {
            break;
        };
        // It stays: a pod that has it open waits until it is read.
        warn!(path = %path.display(), %error, "failed to read a pod's output; retrying");
        sleep(RETRY_PAUSE).await;
        open = open_fifo(&path).await;
    }
    let _ = std::fs::remove_file(path);
}

async fn copy_all(mut file: File, stream: Stream, log: &RefCell<Log>) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    // poll(2) says nothing of a FIFO that no process has open for writing; read(2) returns 0.
    let mut read = file.read(&mut chunk);
    let mut pipe = pipe::Receiver::from_file(file)?;
    loop {
        let bytes = match read {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            read => read?,
        };
        let written = log.borrow_mut().add(&chunk[..bytes], stream);
        if bytes == CHUNK_BYTES {
            sleep(Duration::from_secs(1) * written / POD_BYTES_PER_SECOND).await;
        }
        read = pipe.read(&mut chunk).await;
    }
}

/// The open log of a run.
struct Log {
    run: Run,
    shelf: Rc<RefCell<Shelf>>,
    /// The newest file; none if it cannot be opened.
    file: Option<File>,
    /// The last write failed; the failure was reported.
    is_failing: bool,
    records: Vec<u8>,
}

impl Log {
    fn open(run: Run, shelf: Rc<RefCell<Shelf>>) -> Rc<RefCell<Self>> {
        let mut log = Self {
            run,
            shelf,
            file: None,
            is_failing: false,
            records: Vec::new(),
        };
        // An empty file says that the pod wrote nothing, as opposed to a log that does not exist.
        let opened = log.reopen();
        log.note(&opened);
        Rc::new(RefCell::new(log))
    }

    /// Writes a chunk; returns the number of bytes. What cannot be written is lost: a pod does not wait for a full disk.
    fn add(&mut self, chunk: &[u8], stream: Stream) -> u32 {
        if chunk.is_empty() {
            return 0;
        }
        self.records.clear();
        // Most chunks are small: what a chunk of empty lines took is not kept.
        self.records.shrink_to(4 * CHUNK_BYTES);
        record::write(chunk, stream, Timestamp::now(), &mut self.records);
        let bytes = u64::try_from(self.records.len()).unwrap_or(u64::MAX);
        if self.file.is_none() || !self.shelf.borrow().has_room(&self.run, bytes) {
            self.shelf
                .borrow_mut()
                .next_file(&self.run, SystemTime::now());
            let opened = self.reopen();
            self.note(&opened);
        }
        if let Some(file) = &mut self.file {
            let written = file.write_all(&self.records);
            self.shelf.borrow_mut().written(&self.run, bytes);
            self.note(&written);
        }
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = None;
        self.file = Some(self.shelf.borrow().append(&self.run)?);
        Ok(())
    }

    /// Reports a failure, the first one of those in a row.
    fn note(&mut self, outcome: &io::Result<()>) {
        if let Err(error) = outcome
            && !self.is_failing
        {
            warn!(run = %self.run, %error, "failed to write a pod's log: its output is lost until writes succeed");
        }
        self.is_failing = outcome.is_err();
    }
}

#[cfg(test)]
mod tests;
