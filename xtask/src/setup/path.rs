//! Where programs are looked for: `sudo` and minimal shells leave out folders that we need.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Folders that are not on every PATH: `ip` and `bpftool` live in the system's.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The PATH that every program we start gets: this process's, cargo's folder, the system's.
pub(crate) fn search_path() -> OsString {
    let own = env::var_os("PATH").unwrap_or_default();
    // A folder whose name holds a colon cannot be joined; then the PATH as it is has to do.
    env::join_paths(folders(&own)).unwrap_or(own)
}

/// The first file of this name on the search path.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let own = env::var_os("PATH").unwrap_or_default();
    folders(&own)
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn folders(own: &OsString) -> Vec<PathBuf> {
    let cargo = env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    let cargo = cargo.map(|home| home.join("bin"));
    let mut folders: Vec<PathBuf> = env::split_paths(own).collect();
    for extra in cargo.into_iter().chain(SYSTEM_FOLDERS.map(PathBuf::from)) {
        if !folders.contains(&extra) {
            folders.push(extra);
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_added_behind_those_of_the_person_and_only_once() {
        let found = folders(&OsString::from("/mine:/usr/sbin"));
        assert_eq!(
            found[..2],
            [PathBuf::from("/mine"), PathBuf::from("/usr/sbin")]
        );
        assert_eq!(
            found
                .iter()
                .filter(|folder| folder.as_os_str() == "/usr/sbin")
                .count(),
            1
        );
        assert!(found.contains(&PathBuf::from("/sbin")));
    }

    #[test]
    fn a_program_is_found_by_name_and_a_missing_one_is_not() {
        assert!(program("sh").is_some());
        assert!(program("no-such-program").is_none());
    }
}
