//! The search path of programs: `sudo` and minimal shells omit folders that setup and builds need.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Folders that are not on every PATH; `ip` and `bpftool` are in them.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The PATH of every started program: this process's PATH, cargo's folder, the system's folders.
pub(crate) fn search_path() -> OsString {
    let own = env::var_os("PATH").unwrap_or_default();
    // A folder whose name contains a colon cannot be joined: keep the PATH unchanged.
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
    fn folders_are_appended_to_the_users_and_only_once() {
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
