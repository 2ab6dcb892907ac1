//! Files that are written as a whole: readers have the old text or the new one, and so has the disk after a power failure, if wanted.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What a written file survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process, at any moment. For state that is void after a boot.
    Process,
    /// A power failure, too, once [`write_whole`] has returned.
    PowerFailure,
}

/// Writes a file with these permissions: a new file beside it, `.NAME.new`, is written and renamed. A left-over of a killed writer is
/// replaced, also if it is a running program. On an error the file is as it was, unless only the rename could not be synced.
pub fn write_whole(path: &Path, bytes: &[u8], mode: u32, durability: Durability) -> io::Result<()> {
    let (Some(folder), Some(fresh)) = (path.parent(), fresh(path)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = create(&fresh, mode).and_then(|mut file| {
        file.write_all(bytes)?;
        match durability {
            Durability::Process => Ok(()),
            Durability::PowerFailure => file.sync_all(),
        }
    });
    if let Err(error) = written.and_then(|()| fs::rename(&fresh, path)) {
        // The error matters more than what it leaves.
        drop(fs::remove_file(&fresh));
        return Err(error);
    }
    match durability {
        Durability::Process => Ok(()),
        Durability::PowerFailure => File::open(folder)?.sync_all(),
    }
}

/// The path of the new file. It begins with a dot, because programs that read a folder of configurations leave out such names.
fn fresh(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?;
    let fresh: OsString = [".".as_ref(), name, ".new".as_ref()].into_iter().collect();
    Some(path.with_file_name(fresh))
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const BOTH: [Durability; 2] = [Durability::Process, Durability::PowerFailure];

    #[test]
    fn a_file_is_replaced_with_its_permissions_and_nothing_is_left_beside_it() {
        for durability in BOTH {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("state.json");
            fs::write(&path, "old and longer").unwrap();
            // Left by a writer that was killed.
            fs::write(fresh(&path).unwrap(), "torn").unwrap();
            write_whole(&path, b"new", 0o600, durability).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        for durability in BOTH {
            let folder = tempfile::tempdir().unwrap();
            // A folder cannot be replaced by a file.
            let path = folder.path().join("state.json");
            fs::create_dir(&path).unwrap();
            write_whole(&path, b"new", 0o600, durability).unwrap_err();
            assert!(path.is_dir());
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
            let missing = folder.path().join("missing/state.json");
            write_whole(&missing, b"new", 0o600, durability).unwrap_err();
            write_whole(Path::new("/"), b"new", 0o600, durability).unwrap_err();
        }
    }
}
