//! The folder with the programs and files of the examples, which pods can read wherever the repository is: they run as users without rights, and
//! a home folder is often closed to others.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::binaries::{self, Binaries};

/// Where it is made: pods see no files below /tmp and /run.
const PARENT: &str = "/var/lib";
/// The folder of the repository that the web server of the examples serves.
const DOCS: &str = "docs";

/// The folder; dropping it removes it.
pub(super) struct Shown(PathBuf);

impl Shown {
    /// Makes it again, for the cluster with this prefix.
    pub(super) fn make(prefix: &str, binaries: &Binaries) -> Result<Self> {
        let folder = Path::new(PARENT).join(format!("dormouse-{prefix}"));
        remove(&folder)
            .and_then(|()| fill(&folder, &binaries.hello))
            .with_context(|| format!("failed to fill {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// The binaries, with the program of the examples in this folder.
    pub(super) fn binaries(&self, built: &Binaries) -> Binaries {
        let name = built.hello.file_name().unwrap_or_default();
        Binaries {
            hello: self.0.join(name),
            ..built.clone()
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            // A drop cannot fail, but the failure must be seen.
            let _ = writeln!(
                io::stderr(),
                "failed to remove {}: {error}",
                self.0.display()
            );
        }
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn fill(folder: &Path, hello: &Path) -> io::Result<()> {
    let docs = folder.join(DOCS);
    fs::create_dir_all(&docs)?;
    for shown in [folder, &docs] {
        fs::set_permissions(shown, fs::Permissions::from_mode(0o755))?;
    }
    copy(hello, folder, 0o755)?;
    for file in fs::read_dir(binaries::root().join(DOCS))? {
        let file = file?;
        if file.file_type()?.is_file() {
            copy(&file.path(), &docs, 0o644)?;
        }
    }
    Ok(())
}

fn copy(file: &Path, folder: &Path, mode: u32) -> io::Result<()> {
    let copy = folder.join(file.file_name().unwrap_or_default());
    fs::copy(file, &copy)?;
    fs::set_permissions(copy, fs::Permissions::from_mode(mode))
}
