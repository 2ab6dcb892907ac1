//! Installation of the CNI plugin on a node: its programs, the network configuration by which container runtimes find it, and a
//! record of these files for `uninstall`. A file is replaced by write, fsync and rename, so that no reader sees a part of it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use dormouse_files::{Durability, write_whole};

mod conflist;

pub use conflist::{CONFLIST_DEFAULT, Conflist, configurations, is_own};

/// The programs that a container runtime executes: the plugin, and the agent that it starts while no agent runs.
pub const PROGRAMS: [&str; 2] = ["dormouse-cni", "dormouse-agent"];
/// The record of installed files, in the node's state folder: one path per line.
pub const RECORD: &str = "installed";

const PROGRAM_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// An operation on a file that failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {what} {path}")]
pub struct InstallError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl InstallError {
    fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { what, path, source }
    }
}

/// Copies [`PROGRAMS`] from `from` to `bin_dir`, and records them in the state folder. Returns the new files.
pub fn install_programs(
    from: &Path,
    bin_dir: &Path,
    state_dir: &Path,
) -> Result<Vec<PathBuf>, InstallError> {
    create_folder(bin_dir)?;
    let mut installed = Vec::new();
    for name in PROGRAMS {
        let (source, target) = (from.join(name), bin_dir.join(name));
        let bytes = fs::read(&source).map_err(InstallError::at("read", &source))?;
        // Recorded first: an unfinished installation is removed, too.
        record(state_dir, &target)?;
        replace(&target, &bytes, PROGRAM_MODE)?;
        installed.push(target);
    }
    Ok(installed)
}

/// The recorded files; none if there is no record.
pub fn recorded(state_dir: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(state_dir.join(RECORD)).unwrap_or_default();
    text.lines().map(PathBuf::from).collect()
}

/// Adds a file to the record.
fn record(state_dir: &Path, file: &Path) -> Result<(), InstallError> {
    create_folder(state_dir)?;
    let mut files = recorded(state_dir);
    if files.iter().any(|known| known == file) {
        return Ok(());
    }
    files.push(file.to_owned());
    let lines = files.iter().map(|file| format!("{}\n", file.display()));
    let text: String = lines.collect();
    replace(&state_dir.join(RECORD), text.as_bytes(), FILE_MODE)
}

fn create_folder(folder: &Path) -> Result<(), InstallError> {
    let mut builder = DirBuilder::new();
    let created = builder.recursive(true).mode(FOLDER_MODE).create(folder);
    created.map_err(InstallError::at("create the folder", folder))
}

/// Writes a file, durably and as a whole. Container runtimes read no file of which only a part is written.
fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), InstallError> {
    let written = write_whole(path, bytes, mode, Durability::PowerFailure);
    written.map_err(InstallError::at("write", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn source(folder: &Path, text: &str) -> PathBuf {
        let from = folder.join("from");
        fs::create_dir_all(&from).unwrap();
        for name in PROGRAMS {
            fs::write(from.join(name), text).unwrap();
        }
        from
    }

    #[test]
    fn programs_are_copied_executable_and_recorded_once() {
        let folder = tempfile::tempdir().unwrap();
        let (bin, state) = (folder.path().join("opt/bin"), folder.path().join("state"));
        for text in ["first", "second"] {
            let from = source(folder.path(), text);
            let installed = install_programs(&from, &bin, &state).unwrap();
            assert_eq!(installed, PROGRAMS.map(|name| bin.join(name)));
            assert_eq!(recorded(&state), installed);
            for program in installed {
                assert_eq!(fs::read_to_string(&program).unwrap(), text);
                let mode = fs::metadata(&program).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, PROGRAM_MODE & !umask());
            }
        }
        assert_eq!(fs::read_dir(&bin).unwrap().count(), PROGRAMS.len());
    }

    fn umask() -> u32 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        u32::from_str_radix(line.unwrap().trim(), 8).unwrap()
    }

    #[test]
    fn a_program_is_replaced_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (bin, state) = (folder.path().join("bin"), folder.path().join("state"));
        fs::create_dir(&bin).unwrap();
        let running = bin.join(PROGRAMS[0]);
        fs::copy("/bin/sleep", &running).unwrap();
        let mut process = Command::new(&running).arg("1000").spawn().unwrap();
        install_programs(&source(folder.path(), "new"), &bin, &state).unwrap();
        assert_eq!(fs::read_to_string(&running).unwrap(), "new");
        assert!(process.try_wait().unwrap().is_none(), "it still runs");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    #[test]
    fn a_missing_program_is_named_and_nothing_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (bin, state) = (folder.path().join("bin"), folder.path().join("state"));
        let error = install_programs(folder.path(), &bin, &state).unwrap_err();
        assert!(error.to_string().ends_with("/dormouse-cni"), "{error}");
        assert!(recorded(&state).is_empty());
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 0);
    }
}
