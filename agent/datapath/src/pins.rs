//! The folder on a bpffs in which a node's maps and links are pinned, and its lock.

use std::fs::{File, TryLockError};
use std::path::Path;

use aya::maps::MapData;
use dormouse_agent_sys::retry;

use super::error::DatapathError;

const BPFFS: &str = "/sys/fs/bpf";

/// Creates the folder of pins; mounts a bpffs if there is none.
pub(super) fn make_folder(pins: &Path) -> Result<(), DatapathError> {
    let failed = |source| DatapathError::Folder {
        path: pins.to_path_buf(),
        source,
    };
    let mounted = pins
        .ancestors()
        .find(|folder| folder.exists())
        .is_some_and(is_bpffs);
    if !mounted {
        let place = if pins.starts_with(BPFFS) {
            Path::new(BPFFS)
        } else {
            pins.parent().unwrap_or(pins)
        };
        std::fs::create_dir_all(place).map_err(failed)?;
        nix::mount::mount(
            Some("bpf"),
            place,
            Some("bpf"),
            nix::mount::MsFlags::empty(),
            None::<&str>,
        )
        .map_err(|error| failed(error.into()))?;
        tracing::info!(place = %place.display(), "bpffs mounted");
    }
    std::fs::create_dir_all(pins).map_err(failed)
}

/// Unpins an array of an earlier version that has fewer entries than the programs use: its counters begin at zero.
pub(super) fn drop_smaller(
    pins: &Path,
    name: &'static str,
    entries: u32,
) -> Result<(), DatapathError> {
    let pin = pins.join(name);
    if !pin.exists() {
        return Ok(());
    }
    let read = || MapData::from_pin(&pin)?.info();
    let info = read().map_err(DatapathError::map("look at", name))?;
    if info.max_entries() >= entries {
        return Ok(());
    }
    std::fs::remove_file(&pin).map_err(|source| DatapathError::Folder { path: pin, source })
}

/// Locks a node's folder of pins until the file is closed: maps have one writer.
pub(super) fn lock(bpffs: &Path) -> Result<File, DatapathError> {
    let is_held = |error: &_| matches!(error, DatapathError::InUse { .. });
    retry::wait(retry::INSTANT, is_held, || try_lock(bpffs))
}

fn try_lock(bpffs: &Path) -> Result<File, DatapathError> {
    if !is_bpffs(bpffs) {
        return Err(DatapathError::NoPins {
            path: bpffs.to_path_buf(),
        });
    }
    let failed = |source| DatapathError::Folder {
        path: bpffs.to_path_buf(),
        source,
    };
    let folder = File::open(bpffs).map_err(failed)?;
    match folder.try_lock() {
        Ok(()) => Ok(folder),
        Err(TryLockError::WouldBlock) => Err(DatapathError::InUse {
            path: bpffs.to_path_buf(),
        }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn is_bpffs(folder: &Path) -> bool {
    nix::sys::statfs::statfs(folder)
        .is_ok_and(|found| found.filesystem_type() == nix::sys::statfs::BPF_FS_MAGIC)
}
