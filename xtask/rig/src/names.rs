//! Names that no other test has, in this process or in another, and the end of those that killed runs left.
//!
//! A name is `PREFIX-NUMBER-ROLE`; the prefix is a letter and the process id. So whatever carries the prefix of a process
//! that does not run any more is left over, and [`World::clear`] removes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse_world::World;

/// The letter of what a test makes for itself.
const OWN: char = 't';
/// The letters of worlds, in turns: a test program has fewer worlds at a time.
const WORLDS: [char; 18] = [
    'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r',
];

/// A new name for a namespace, a node or a folder of pins.
pub(crate) fn fresh(role: &str) -> String {
    static NUMBERS: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    format!("{}-{number}-{role}", own())
}

/// The prefix of all names of this process that are not a world's.
pub(crate) fn own() -> &'static str {
    static PREFIX: OnceLock<String> = OnceLock::new();
    PREFIX.get_or_init(|| {
        clear_dead();
        format!("{OWN}{}", process::id())
    })
}

/// A new prefix for a world.
pub fn world() -> String {
    static NUMBERS: AtomicUsize = AtomicUsize::new(0);
    own();
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let letter = WORLDS[number % WORLDS.len()];
    format!("{letter}{}", process::id())
}

/// Removes what killed runs left, those of a process that had this one's id too.
fn clear_dead() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "run as root: sudo -E cargo test"
    );
    let cgroups = dormouse_world::cgroups().unwrap().join("dormouse");
    let folders = ["/run/netns", "/sys/fs/bpf/dormouse"].map(PathBuf::from);
    let mut left: Vec<String> = folders
        .iter()
        .chain([&cgroups])
        .flat_map(|folder| prefixes(folder))
        .filter(|prefix| is_left(prefix))
        .collect();
    left.sort();
    left.dedup();
    for prefix in left {
        // Another process may be clearing it.
        let _ = World::clear(&prefix);
    }
}

fn prefixes(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter_map(|name| name.split('-').next().map(str::to_owned))
        .collect()
}

/// Whether a prefix is that of a process that is gone, or of one before this that had its id.
fn is_left(prefix: &str) -> bool {
    let letters = |letter: char| letter == OWN || WORLDS.contains(&letter);
    let number = prefix.strip_prefix(letters);
    let id = number.and_then(|number| number.parse::<u32>().ok());
    id.is_some_and(|id| id == process::id() || !Path::new(&format!("/proc/{id}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prefixes_of_processes_that_are_gone_are_left_over() {
        assert!(is_left("t4294967295") && is_left("a4294967295"));
        assert!(!is_left("t1") && !is_left("a1"), "the first process runs");
        for other in ["demo", "bench", "x4294967295", "t", "", "t4294967295x"] {
            assert!(!is_left(other), "{other}");
        }
    }
}
