//! The records of pods with ports of the node: a file per pod.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use dormouse_files::{Durability, write_whole};

use super::PodPorts;

const FILE_MODE: u32 = 0o644;

/// The folder of the records.
#[derive(Debug)]
pub(super) struct Records {
    folder: PathBuf,
}

impl Records {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Writes a record. It need not survive a power failure: after a boot there are no pods.
    pub(super) fn write(&self, pod: &PodPorts) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let text = serde_json::to_vec(pod)?;
        let path = self.path(pod.address);
        write_whole(&path, &text, FILE_MODE, Durability::Process)
    }

    /// Removes the record of the pod with this address.
    pub(super) fn remove(&self, address: Ipv6Addr) {
        if let Err(error) = fs::remove_file(self.path(address)) {
            tracing::warn!(%error, %address, "failed to remove the record of a pod's ports of the node; the next agent removes it");
        }
    }

    /// All records, by the pods' addresses. One that cannot be read is left out.
    pub(super) fn read(&self) -> io::Result<BTreeMap<Ipv6Addr, PodPorts>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries?,
        };
        let mut pods = BTreeMap::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|ending| ending != "json") {
                continue;
            }
            match serde_json::from_slice::<PodPorts>(&fs::read(&path)?) {
                Ok(pod) => drop(pods.insert(pod.address, pod)),
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "a record of a pod's ports of the node cannot be read: the pod has none");
                }
            }
        }
        Ok(pods)
    }

    fn path(&self, address: Ipv6Addr) -> PathBuf {
        self.folder.join(format!("{:x}.json", u128::from(address)))
    }
}
