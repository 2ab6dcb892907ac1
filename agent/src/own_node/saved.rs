//! A copy of what the Node object said, in the state folder: an agent that is restarted while no API server answers starts with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dormouse_files::{Durability, write_whole};

use super::Described;

/// Name of the file, in the node's state folder.
pub const FILE: &str = "node.json";
/// Its permissions: it is not secret.
const FILE_MODE: u32 = 0o644;

/// Writes the copy.
pub fn save(state_dir: &Path, described: &Described) -> io::Result<()> {
    let text = serde_json::to_vec(described)?;
    write_whole(&path(state_dir), &text, FILE_MODE, Durability::PowerFailure)
}

/// The copy about the node with this name; none if there is no readable one.
pub fn load(state_dir: &Path, node: &str) -> Option<Described> {
    let bytes = fs::read(path(state_dir)).ok()?;
    let described: Described = serde_json::from_slice(&bytes).ok()?;
    (described.name == node).then_some(described)
}

/// Removes the copy, if there is one: the next agent waits for the object.
pub fn remove(state_dir: &Path) -> io::Result<()> {
    match fs::remove_file(path(state_dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}
