//! The folders of pins, and their content.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::DatapathError;

/// The folders of pins beside this one.
pub(super) fn beside(folder: &Path) -> Result<Vec<PathBuf>, DatapathError> {
    let Some(parent) = folder.parent().filter(|parent| parent.exists()) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).map_err(failed(parent))? {
        let entry = entry.map_err(failed(parent))?;
        let is_folder = entry.file_type().map_err(failed(parent))?.is_dir();
        let is_layout = entry.file_name().to_string_lossy().starts_with('v');
        if is_folder && is_layout && entry.path() != folder {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Renames a folder to a name that is not a layout's.
pub(super) fn set_aside(folder: &Path) -> Result<PathBuf, DatapathError> {
    let mut aside = folder.as_os_str().to_owned();
    while Path::new(&aside).exists() {
        aside.push("-former");
    }
    fs::rename(folder, &aside).map_err(failed(folder))?;
    Ok(aside.into())
}

/// Removes a folder with its content.
pub(super) fn remove(folder: &Path) -> Result<(), DatapathError> {
    fs::remove_dir_all(folder).map_err(failed(folder))
}

/// The names of the pinned links.
pub(super) fn links(folder: &Path) -> Result<Vec<OsString>, DatapathError> {
    let mut links = pins(folder)?;
    links.retain(is_link);
    Ok(links)
}

/// Whether a pin of this name is a link.
pub(super) fn is_link(name: &OsString) -> bool {
    let text = name.to_string_lossy();
    text.starts_with("link_") || text.starts_with("pod_")
}

/// The names of all pins.
pub(super) fn pins(folder: &Path) -> Result<Vec<OsString>, DatapathError> {
    let pins = fs::read_dir(folder).map_err(failed(folder))?;
    pins.map(|pin| Ok(pin.map_err(failed(folder))?.file_name()))
        .collect()
}

/// For `map_err`: a failed operation on a folder.
pub(super) fn failed(path: &Path) -> impl Fn(std::io::Error) -> DatapathError {
    move |source| DatapathError::Folder {
        path: path.to_path_buf(),
        source,
    }
}
