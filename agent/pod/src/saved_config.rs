//! The last agent's network configuration, saved for `offline`, which has no command line flags, once the node could take pods.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dormouse_files::{Durability, write_whole};
use serde::{Deserialize, Serialize};

use crate::{Ipv4Range, NetworkConfig, NetworkError, NodePrefix};

const FILE: &str = "network.json";
const FILE_MODE: u32 = 0o644;

/// The fields of [`NetworkConfig`] except the state folder.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SavedConfig {
    prefix: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range4: Option<String>,
    /// None if the delivered prefix is the node's prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered: Option<String>,
    bridge: String,
    uplink: String,
    /// The kernel's boot id: after a reboot there is no data path until an agent has run.
    #[serde(default)]
    boot_id: String,
}

/// Writes the configuration into the state folder, durably.
pub fn save(config: &NetworkConfig) -> io::Result<()> {
    let saved = SavedConfig {
        prefix: config.prefix.to_string(),
        range4: config.range4.map(Ipv4Range::cidr),
        delivered: (config.delivered != config.prefix).then(|| config.delivered.to_string()),
        bridge: config.bridge.clone(),
        uplink: config.uplink.clone(),
        boot_id: boot_id()?,
    };
    let text = serde_json::to_vec(&saved)?;
    write_whole(
        &path(&config.state_dir),
        &text,
        FILE_MODE,
        Durability::PowerFailure,
    )
}

/// Whether an agent has saved its configuration since the machine booted.
pub fn is_of_this_boot(state_dir: &Path) -> bool {
    read(state_dir).is_ok_and(|saved| boot_id().is_ok_and(|boot_id| saved.boot_id == boot_id))
}

/// Reads the saved configuration. Fails if the machine has been rebooted since: pods would be without a data path.
pub fn load_of_this_boot(state_dir: &Path) -> Result<NetworkConfig, NetworkError> {
    let config = load(state_dir)?;
    if is_of_this_boot(state_dir) {
        return Ok(config);
    }
    let source = io::Error::other("no agent has run since this machine booted");
    Err(failed(source))
}

/// Reads the saved configuration.
pub fn load(state_dir: &Path) -> Result<NetworkConfig, NetworkError> {
    let saved = read(state_dir).map_err(failed)?;
    let read = |text: &str| -> Result<NodePrefix, NetworkError> {
        text.parse().map_err(io::Error::other).map_err(failed)
    };
    let prefix = read(&saved.prefix)?;
    let delivered = saved.delivered.as_deref().map(read).transpose()?;
    let range4: Option<Ipv4Range> = saved
        .range4
        .map(|text| text.parse())
        .transpose()
        .map_err(io::Error::other)
        .map_err(failed)?;
    let config = NetworkConfig::new(prefix, state_dir.to_owned(), saved.uplink);
    Ok(NetworkConfig {
        range4,
        bridge: saved.bridge,
        delivered: delivered.unwrap_or(prefix),
        ..config
    })
}

fn read(state_dir: &Path) -> io::Result<SavedConfig> {
    Ok(serde_json::from_slice(&fs::read(path(state_dir))?)?)
}

fn failed(source: io::Error) -> NetworkError {
    NetworkError::Machine {
        what: "read the network configuration of the last agent; run dormouse-agent once",
        source,
    }
}

fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_configuration_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let error = load(folder.path()).unwrap_err();
        assert!(error.to_string().contains("run dormouse-agent once"));
        let prefix = "2001:db8:d0:0:0:1::/96".parse().unwrap();
        let mut saved = NetworkConfig::new(prefix, folder.path().to_owned(), "eth0");
        saved.range4 = Some("10.1.2.0/24".parse().unwrap());
        saved.bridge = "br7".into();
        saved.delivered = "2001:db8:d0::/64".parse().unwrap();
        save(&saved).unwrap();
        save(&saved).unwrap();
        assert_eq!(
            load_of_this_boot(folder.path()).unwrap().prefix,
            saved.prefix
        );
        let read = load(folder.path()).unwrap();
        assert_eq!((read.prefix, read.range4), (prefix, saved.range4));
        assert_eq!(read.delivered, saved.delivered);
        assert_eq!(
            (read.bridge.as_str(), read.uplink.as_str()),
            ("br7", "eth0")
        );
    }

    #[test]
    fn after_a_reboot_an_agent_must_run_first() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = "2001:db8:d0:0:0:1::/96".parse().unwrap();
        save(&NetworkConfig::new(
            prefix,
            folder.path().to_owned(),
            "eth0",
        ))
        .unwrap();
        let text = fs::read_to_string(path(folder.path())).unwrap();
        let other = text.replace(&boot_id().unwrap(), "of an earlier boot");
        fs::write(path(folder.path()), other).unwrap();
        assert!(!is_of_this_boot(folder.path()));
        let error = load_of_this_boot(folder.path()).unwrap_err();
        assert!(error.chain().contains("since this machine booted"));
        load(folder.path()).unwrap();
    }
}
