//! Removes every part of a world, found by its name, whatever state it is in.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::cgroup;
use crate::error::WorldError;
use crate::host::Roots;
use crate::netns;

/// Removes everything of the world `prefix`. A failure does not keep the rest from being removed.
pub(crate) fn everything(prefix: &str, roots: &Roots) -> Result<(), WorldError> {
    let start = format!("{prefix}-");
    let mut failures = Vec::new();
    let mut note = |outcome: Result<(), WorldError>| {
        failures.extend(outcome.err().map(|error| error.chain()));
    };
    // Processes first: they would make the rest again.
    note(cgroup::remove(&roots.cgroup));
    for pins in folders(&roots.pins, &start) {
        note(remove_folder(&pins));
    }
    for name in netns::list(&start) {
        note(netns::remove(&name));
    }
    note(remove_folder(&roots.folder));
    // Other worlds may still use the parents: then they are not empty, and stay.
    for parent in [roots.cgroup.parent(), Some(roots.pins.as_path())]
        .into_iter()
        .flatten()
    {
        let _ = fs::remove_dir(parent);
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(WorldError::Removal {
        prefix: prefix.to_owned(),
        failures,
    })
}

fn folders(parent: &Path, start: &str) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    ours.map(|entry| entry.path()).collect()
}

fn remove_folder(path: &Path) -> Result<(), WorldError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(WorldError::file("remove", path)),
    }
}
