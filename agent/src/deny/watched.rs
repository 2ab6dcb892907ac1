//! The watched file of denied prefixes: read when its writer has closed it, or when another file has taken its place.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use dormouse_agent_services::Prefix;
use dormouse_agent_sys::readiness;
use dormouse_files::Stamp;
use tokio::io::unix::AsyncFd;
use tracing::{error, warn};

use super::file::{Parsed, parse};
use crate::source::manifests::watch::Watch;

/// Bytes of the file at most: a million prefixes with a comment each.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// The file, and the watch on its folder.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    name: OsString,
    watch: Watch,
    /// Created at the first wait, inside the async runtime.
    events: Option<AsyncFd<OwnedFd>>,
    /// Whether the watch failed, which is reported once.
    is_blind: bool,
    /// The state in which it was read.
    stamp: Option<Stamp>,
    /// Whether there were events while it was read.
    again: bool,
    /// Why it could not be read the last time.
    problem: Option<String>,
}

impl WatchedFile {
    /// Watches the file's folder, which may not exist yet.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok(Self {
            name: name.to_owned(),
            watch: Watch::open_awaiting(folder)?,
            events: None,
            is_blind: false,
            stamp: None,
            again: false,
            problem: None,
            path,
        })
    }

    /// Returns when the file may have changed. Cancel safe.
    pub(super) async fn changed(&mut self) {
        if std::mem::take(&mut self.again) {
            return;
        }
        loop {
            if self.is_blind {
                return std::future::pending().await;
            }
            match self.wait().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    self.is_blind = true;
                    error!(%error, path = %self.path.display(), "the file of --deny-file is not followed any more");
                }
            }
        }
    }

    /// Waits for events of the folder; whether the file has to be read.
    async fn wait(&mut self) -> io::Result<bool> {
        let events = match self.events.take() {
            Some(events) => events,
            None => readiness::watch(self.watch.descriptor()?)?,
        };
        // Readiness is cleared before reading: later events wake again.
        self.events.insert(events).readable().await?.clear_ready();
        Ok(self.watch.events()?.look && !self.watch.is_written(&self.name))
    }

    /// Reads the file; none, if it is the same as before, or is being written: its writer's end is an event. An error is returned
    /// once while it lasts.
    pub(super) fn read(&mut self) -> Result<Option<Vec<Prefix>>, String> {
        let read = self.read_changed();
        let problem = read.as_ref().err().cloned();
        let is_known = problem.is_some() && problem == self.problem;
        self.problem = problem;
        if is_known { Ok(None) } else { read }
    }

    fn read_changed(&mut self) -> Result<Option<Vec<Prefix>>, String> {
        let named = |error: io::Error| format!("{}: {error}", self.path.display());
        let stamp = Stamp::of(&fs::metadata(&self.path).map_err(named)?);
        if !stamp.differs(self.stamp) {
            return Ok(None);
        }
        let parsed = read(&self.path).map_err(named)?;
        match self.watch.events() {
            Ok(events) => self.again |= events.look,
            Err(error) => return Err(named(error.into())),
        }
        if self.watch.is_written(&self.name) {
            return Ok(None);
        }
        self.stamp = Some(stamp);
        for wrong in &parsed.wrong {
            warn!(path = %self.path.display(), line = wrong.line, text = wrong.text, why = wrong.why, "a line of --deny-file is left out");
        }
        if parsed.wrong_count > parsed.wrong.len() {
            warn!(path = %self.path.display(), lines = parsed.wrong_count, "lines of --deny-file are left out");
        }
        Ok(Some(parsed.prefixes))
    }
}

fn read(path: &Path) -> io::Result<Parsed> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(FILE_BYTES_MAX + 1);
    file.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let text = format!("more than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(parse(&bytes))
}
