//! Pending deletions: a DEL that finds no agent is stored in a file, which the next agent reads and carries out.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::Attachment;

const FOLDER: &str = "pending-del";

/// A deletion for the next agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingDel {
    /// The attachment to remove.
    pub attachment: Attachment,
    /// Time of the DEL, in nanoseconds since boot: an attachment wired later belongs to another pod and stays.
    pub at_ns: u64,
    /// The kernel's boot id: after a reboot the attachment is gone already.
    pub boot_id: String,
}

impl PendingDel {
    /// A deletion with the present time and boot id.
    pub fn now(attachment: Attachment) -> io::Result<Self> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?
            .trim()
            .to_owned();
        let at_ns = u64::try_from(since_boot().as_nanos()).map_err(io::Error::other)?;
        Ok(Self {
            attachment,
            at_ns,
            boot_id,
        })
    }

    /// Writes it below the node's state folder, and returns once it would survive a power failure.
    pub fn write(&self, state_dir: &Path) -> io::Result<()> {
        let folder = state_dir.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let fresh = folder.join(format!(".{}.new", std::process::id()));
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&fresh, folder.join(self.file_name()))?;
        File::open(&folder)?.sync_all()?;
        File::open(state_dir)?.sync_all()
    }

    fn file_name(&self) -> String {
        let Attachment {
            network,
            container_id,
            ifname,
        } = &self.attachment;
        format!("{network}@{container_id}@{ifname}.json")
    }
}

/// All pending deletions with their files. Files of another form are ignored.
pub fn read_all(state_dir: &Path) -> io::Result<Vec<(PathBuf, PendingDel)>> {
    let entries = match fs::read_dir(state_dir.join(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if is_orphan(&path) {
            fs::remove_file(&path)?;
        }
        if path.extension().is_some_and(|e| e == "json")
            && let Ok(pending) = serde_json::from_slice(&fs::read(&path)?)
        {
            found.push((path, pending));
        }
    }
    Ok(found)
}

/// Whether this is an unfinished file whose writer died. Its runtime had no reply and will repeat the DEL.
fn is_orphan(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let writer = name.and_then(|name| name.strip_prefix('.')?.strip_suffix(".new"));
    writer.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
}

/// Time since boot, including suspend (`CLOCK_BOOTTIME`).
pub fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_is_read_back_and_other_files_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read_all(folder.path()).unwrap().is_empty());
        let attachment = Attachment {
            network: "pods".into(),
            container_id: "c1".into(),
            ifname: "eth0".into(),
        };
        let pending = PendingDel::now(attachment).unwrap();
        pending.write(folder.path()).unwrap();
        pending.write(folder.path()).unwrap();
        fs::write(folder.path().join(FOLDER).join("torn.json"), "{").unwrap();
        let found = read_all(folder.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1, pending);
    }
}
