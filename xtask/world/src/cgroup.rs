//! Makes cgroups, and ends and removes them with everything inside.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::WorldError;
use crate::mounts;

/// How long killed processes may take to be gone.
const EMPTY_LIMIT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How often a parent may vanish under us: another world's removal takes it when it is empty.
const ATTEMPTS_MAX: u32 = 10;

/// A cgroup (version 2) beside those of worlds. Dropping it kills every process in it, and removes it.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes the cgroup `name` among those of `prefix`, which [`World::clear`](crate::World::clear) removes together.
    pub fn create(prefix: &str, name: &str) -> Result<Self, WorldError> {
        let path = mounts::cgroups()?.join("dormouse").join(prefix).join(name);
        create(&path)?;
        Ok(Self(path))
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            // A drop cannot fail, but the failure must be seen.
            let _ = writeln!(io::stderr(), "{}", error.chain());
        }
        // Others of the prefix may still be there: then it is not empty, and stays.
        for parent in self.0.ancestors().skip(1).take(2) {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// Makes a cgroup and those above it.
pub(crate) fn create(path: &Path) -> Result<(), WorldError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match fs::create_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && attempts < ATTEMPTS_MAX => {}
            made => return made.map_err(WorldError::file("make the cgroup", path)),
        }
    }
}

/// Kills every process in a cgroup and below it, then removes it. One that is not there is no error.
pub(crate) fn remove(path: &Path) -> Result<(), WorldError> {
    if !path.exists() {
        return Ok(());
    }
    let began = Instant::now();
    kill(path)?;
    while populated(path)? && began.elapsed() < EMPTY_LIMIT {
        thread::sleep(LOOK_EVERY);
        // A process that was just being started may join after the first kill.
        kill(path)?;
    }
    for folder in below(path).into_iter().rev() {
        remove_one(&folder, began)?;
    }
    Ok(())
}

fn kill(path: &Path) -> Result<(), WorldError> {
    let kill = path.join("cgroup.kill");
    fs::write(&kill, "1").map_err(WorldError::file("write", &kill))
}

/// The kernel may need a moment more before it lets an empty cgroup go.
fn remove_one(path: &Path, began: Instant) -> Result<(), WorldError> {
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if busy(&error) && began.elapsed() < EMPTY_LIMIT => {
                thread::sleep(LOOK_EVERY);
                kill(path)?;
            }
            removed => return removed.map_err(WorldError::file("remove the cgroup", path)),
        }
    }
}

fn busy(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ResourceBusy
}

fn populated(path: &Path) -> Result<bool, WorldError> {
    let events = path.join("cgroup.events");
    let text = fs::read_to_string(&events).map_err(WorldError::file("read", &events))?;
    Ok(text.lines().any(|line| line == "populated 1"))
}

/// The cgroup and all below it, each before those that it holds.
fn below(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_path_buf()];
    let mut next = 0;
    while let Some(folder) = found.get(next) {
        let entries = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        let folders: Vec<_> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .collect();
        found.extend(folders.iter().map(fs::DirEntry::path));
        next += 1;
    }
    found
}
