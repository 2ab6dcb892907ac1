//! The watched file of denied prefixes: read when its writer has closed it, or when another file has taken its place.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use dormouse_agent_services::Prefix;
use dormouse_agent_sys::readiness;
use dormouse_files::Stamp;
use tokio::io::unix::AsyncFd;
use tracing::{error, warn};

use super::file::{Parsed, parse};
use crate::regular_file;
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
    let mut file = regular_file::open(path)?.take(FILE_BYTES_MAX + 1);
    file.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let text = format!("more than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(parse(&bytes))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::sync::mpsc;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// Far longer than a read takes; only a read that waits for a writer reaches it.
    const DEADLINE: Duration = Duration::from_secs(10);

    /// Reads on a thread of its own: a read that waits must not stop the test.
    fn read_in_time(mut file: WatchedFile) -> (WatchedFile, Result<Option<Vec<Prefix>>, String>) {
        let (sender, receiver) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let read = file.read();
            // The test has ended, if it waited in vain.
            let _ = sender.send((file, read));
        });
        receiver.recv_timeout(DEADLINE).unwrap()
    }

    #[test]
    fn a_fifo_in_the_files_place_is_an_error_and_the_next_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deny.txt");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let file = WatchedFile::open(path.clone()).unwrap();
        let (file, read) = read_in_time(file);
        let error = read.unwrap_err();
        assert!(error.ends_with("deny.txt: not a regular file"), "{error}");

        fs::remove_file(&path).unwrap();
        fs::write(&path, "2001:db8:c0::/64\n").unwrap();
        let (file, read) = read_in_time(file);
        let prefix = Prefix::parse("2001:db8:c0::/64").unwrap();
        assert_eq!(read, Ok(Some(vec![prefix])));

        fs::remove_file(&path).unwrap();
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let (_, read) = read_in_time(file);
        assert!(read.unwrap_err().contains("not a regular file"));
    }

    #[test]
    fn a_file_that_is_created_again_and_not_filled_yet_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deny.txt");
        fs::write(&path, "192.0.2.0/24\n").unwrap();
        let mut watched = WatchedFile::open(path.clone()).unwrap();
        let prefix = |text| Prefix::parse(text).unwrap();
        assert_eq!(watched.read(), Ok(Some(vec![prefix("192.0.2.0/24")])));
        fs::remove_file(&path).unwrap();
        let mut file = File::create(&path).unwrap();
        assert_eq!(watched.read(), Ok(None));
        file.write_all(b"198.51.100.0/24\n").unwrap();
        drop(file);
        assert_eq!(watched.read(), Ok(Some(vec![prefix("198.51.100.0/24")])));
        // One that is closed without anything in it is meant to be empty.
        fs::remove_file(&path).unwrap();
        drop(File::create(&path).unwrap());
        assert_eq!(watched.read(), Ok(Some(Vec::new())));
    }
}
