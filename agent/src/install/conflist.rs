//! The network configuration (conflist) of a node: written when pods can be wired, and never removed while the plugin is installed.
//! Configurations of other plugins stay; a container runtime uses the first of the folder in the order of names.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tracing::{info, warn};

use super::{FILE_MODE, InstallError, create_folder, record, recorded, replace};

/// Name of the file, unless another is given.
pub const CONFLIST_DEFAULT: &str = "10-dormouse.conflist";
/// The plugin's name in a configuration.
const PLUGIN: &str = "dormouse-cni";
/// Endings of the files that container runtimes read.
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];

/// The network configuration of a node, and its place.
#[derive(Clone, Debug)]
pub struct Conflist {
    /// The runtime's folder of network configurations.
    pub folder: PathBuf,
    /// Name of the file.
    pub name: String,
    /// The socket on which the agent serves the plugin.
    pub socket: PathBuf,
    /// The node's state folder.
    pub state_dir: PathBuf,
}

impl Conflist {
    /// Writes the file unless it has this content already, removes those of earlier names, and logs which file container runtimes use.
    pub fn write(&self) -> Result<(), InstallError> {
        let path = self.folder.join(&self.name);
        let text = self.text();
        create_folder(&self.folder)?;
        record(&self.state_dir, &path)?;
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            replace(&path, text.as_bytes(), FILE_MODE)?;
        }
        let known = recorded(&self.state_dir).into_iter();
        for earlier in known.filter(|known| *known != path && is_own(known)) {
            fs::remove_file(&earlier).map_err(InstallError::at("remove", &earlier))?;
        }
        self.log(&path);
        Ok(())
    }

    fn text(&self) -> String {
        format!("{:#}\n", content(&self.socket, &self.state_dir))
    }

    fn log(&self, path: &Path) {
        let files = configurations(&self.folder);
        let first = files.first();
        if first.is_none_or(|first| *first == *self.name) {
            let others = files.len().saturating_sub(1);
            return info!(path = %path.display(), others, "the network configuration is installed: container runtimes use it, the first of its folder");
        }
        warn!(
            path = %path.display(), used = first.map(|first| first.display().to_string()),
            "container runtimes use another network configuration, which comes first in the order of names: remove it, or give this one an earlier name (--cni-conf-name 00-dormouse.conflist)"
        );
    }
}

/// Whether a file is a network configuration with the plugin.
pub fn is_own(path: &Path) -> bool {
    let text = fs::read(path).unwrap_or_default();
    let conf: Value = serde_json::from_slice(&text).unwrap_or_default();
    let plugins = conf["plugins"].as_array();
    plugins.is_some_and(|plugins| plugins.iter().any(|plugin| plugin["type"] == PLUGIN))
}

/// The configuration. While no agent runs, the plugin starts the agent's program beside it for each request.
fn content(socket: &Path, state_dir: &Path) -> Value {
    let capabilities = json!({"bandwidth": true, "ips": true, "mac": true, "portMappings": true});
    json!({
        "cniVersion": "1.0.0",
        "cniVersions": ["1.0.0", "1.1.0"],
        "name": "dormouse",
        "plugins": [{
            "type": PLUGIN,
            "capabilities": capabilities,
            "socket": socket,
            "stateDir": state_dir,
            "fallback": "offline",
        }],
    })
}

/// Names of the configurations in a folder, in the order in which container runtimes try them.
pub fn configurations(folder: &Path) -> Vec<OsString> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_read = |name: &OsString| {
        let ending = Path::new(name).extension().and_then(OsStr::to_str);
        ending.is_some_and(|ending| ENDINGS.contains(&ending))
    };
    let mut names: Vec<_> = files.map(|file| file.file_name()).filter(is_read).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use dormouse_cni::{SOCKET_DEFAULT, STATE_DIR_DEFAULT};

    use super::*;

    fn conflist(folder: &Path) -> Conflist {
        Conflist {
            folder: folder.join("net.d"),
            name: CONFLIST_DEFAULT.to_owned(),
            socket: "/run/d/agent.sock".into(),
            state_dir: folder.join("state"),
        }
    }

    #[test]
    fn the_written_configuration_is_the_one_for_hand_made_nodes_with_the_fallback() {
        let shipped = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../deploy/cni/10-dormouse.conflist"
        );
        let mut shipped: Value = serde_json::from_slice(&fs::read(shipped).unwrap()).unwrap();
        shipped["plugins"][0]["fallback"] = "offline".into();
        let defaults = content(SOCKET_DEFAULT.as_ref(), STATE_DIR_DEFAULT.as_ref());
        assert_eq!(defaults, shipped);
    }

    #[test]
    fn it_replaces_an_older_one_and_leaves_others() {
        let folder = tempfile::tempdir().unwrap();
        let conflist = conflist(folder.path());
        fs::create_dir(&conflist.folder).unwrap();
        let path = conflist.folder.join(CONFLIST_DEFAULT);
        let other = conflist.folder.join("05-other.conflist");
        fs::write(&other, "{}").unwrap();
        fs::write(&path, r#"{"plugins": [{"type": "dormouse-cni"}]}"#).unwrap();
        conflist.write().unwrap();
        let written: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(written["plugins"][0]["socket"], "/run/d/agent.sock");
        assert!(is_own(&path) && !is_own(&other));
        assert_eq!(fs::read_to_string(&other).unwrap(), "{}");
        assert_eq!(recorded(&conflist.state_dir), [path.as_path()]);
        let inode = |path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
        let before = inode(&path);
        conflist.write().unwrap();
        assert_eq!(inode(&path), before, "an equal file is not written again");
        let renamed = Conflist {
            name: "00-dormouse.conflist".to_owned(),
            ..conflist
        };
        renamed.write().unwrap();
        assert!(!path.exists() && other.exists());
        assert!(is_own(&renamed.folder.join(&renamed.name)));
    }

    #[test]
    fn configurations_are_tried_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "20-b.conf",
            "10-a.json",
            "9-c.conflist",
            ".5-x.conflist.new",
            "notes",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names = configurations(folder.path());
        assert_eq!(names, ["10-a.json", "20-b.conf", "9-c.conflist"]);
    }
}
