//! The node's files, folders, namespaces and cgroups, and its running standalone pods.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{NodePaths, Removal};
use crate::deny::{message, record};
use crate::own_node::saved;
use crate::runtime::LOGS_CGROUP;
use crate::{host_ports, install};

/// The agent's files in its state folder.
const STATE: [&str; 18] = [
    "activators",
    ".activators.new",
    "epoch",
    ".epoch.new",
    install::RECORD,
    ".installed.new",
    "leases",
    "leases.new",
    "network.json",
    ".network.json.new",
    // Names of earlier versions.
    "activators.new",
    "epoch.new",
    "network.new",
    saved::FILE,
    ".node.json.new",
    record::FILE,
    ".deny.json.new",
    "agent.lock",
];
/// The agent's folders in its state folder, and the suffixes of the file names in them.
const FOLDERS: [(&str, &[&str]); 5] = [
    (
        dormouse_fleet::membership::FOLDER,
        &["pem", "crt", "json", "new"],
    ),
    ("pending-del", &["json", "new"]),
    (host_ports::FOLDER, &["json", "new"]),
    (
        "pods",
        &["json", "log", "new", "draft", "error", "unreadable"],
    ),
    (
        "logs",
        &["json", "out", "err", "log", "new", "lock", "stderr"],
    ),
];
/// A folder of sockets or pins with this name belongs to Dormouse.
const OWN: &str = "dormouse";
/// Number of bytes of a pod's uid in the name of its namespace.
const UID_LEN: usize = 13;

/// The existing objects, in the order in which they can be removed.
pub(super) fn removals(paths: &NodePaths) -> io::Result<Vec<Removal>> {
    let mut removals = Vec::new();
    removals.extend(installed(paths).into_iter().map(Removal::File));
    for (uid, _record) in records(paths)? {
        // First the processes: without its record, no agent would ever end them.
        removals.push(Removal::Cgroup(paths.cgroup.join(format!("pod-{uid}"))));
        removals.push(Removal::Namespace(namespace(paths, &uid)));
    }
    removals.push(Removal::Cgroup(paths.cgroup.join(LOGS_CGROUP)));
    removals.push(Removal::Pins(paths.bpffs.clone()));
    removals.extend(own_parent(&paths.bpffs).map(Removal::Folder));
    for socket in [&paths.socket, &message::socket(&paths.socket)] {
        if fs::symlink_metadata(socket).is_ok_and(|found| found.file_type().is_socket()) {
            removals.push(Removal::File(socket.clone()));
        }
    }
    removals.extend(own_parent(&paths.socket).map(Removal::Folder));
    for (folder, endings) in FOLDERS {
        let folder = paths.state_dir.join(folder);
        let is_ours = |path: &PathBuf| {
            let ending = path.extension().and_then(|ending| ending.to_str());
            ending.is_some_and(|ending| endings.contains(&ending))
        };
        removals.extend(
            entries(&folder)?
                .into_iter()
                .filter(is_ours)
                .map(Removal::File),
        );
        removals.push(Removal::Folder(folder));
    }
    removals.extend(STATE.map(|name| Removal::File(paths.state_dir.join(name))));
    removals.push(Removal::Folder(paths.state_dir.clone()));
    removals.retain(is_there);
    Ok(removals)
}

/// The files of the plugin's installation: first the network configuration, so that no runtime looks for a plugin that is gone. One
/// that names other plugins only is not the agent's any more.
fn installed(paths: &NodePaths) -> Vec<PathBuf> {
    let is_program = |path: &PathBuf| install::PROGRAMS.iter().any(|name| path.ends_with(name));
    let recorded = install::recorded(&paths.state_dir);
    let (programs, mut files): (Vec<_>, Vec<_>) = recorded.into_iter().partition(is_program);
    files.retain(|path| install::is_own(path));
    files.extend(programs);
    files
}

/// The uids of standalone pods.
pub(super) fn uids(paths: &NodePaths) -> io::Result<Vec<String>> {
    Ok(records(paths)?.into_iter().map(|(uid, _)| uid).collect())
}

/// Standalone pods whose processes run.
pub(super) fn processes(paths: &NodePaths) -> io::Result<Vec<String>> {
    let alive = records(paths)?.into_iter().filter_map(|(uid, record)| {
        let pid = process(&record)?;
        Some(format!(
            "{} (process {pid})",
            record["name"].as_str().unwrap_or(&uid)
        ))
    });
    Ok(alive.collect())
}

fn is_there(removal: &Removal) -> bool {
    match removal {
        Removal::Namespace(path)
        | Removal::Pins(path)
        | Removal::File(path)
        | Removal::Cgroup(path)
        | Removal::Folder(path) => fs::symlink_metadata(path).is_ok(),
        _ => true,
    }
}

/// The records of standalone pods, by uid.
fn records(paths: &NodePaths) -> io::Result<Vec<(String, Value)>> {
    let paths = entries(&paths.state_dir.join("pods"))?;
    let records = paths
        .iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    let read = records.filter_map(|path| {
        let uid = path.file_stem()?.to_str()?.to_owned();
        let record = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        Some((uid, record))
    });
    Ok(read.collect())
}

/// The process of a record, if it runs: a later process with the same pid has another start time.
fn process(record: &Value) -> Option<u64> {
    let state = &record["state"];
    let known = [&state["running"], &state["stopping"]];
    let known = known.into_iter().find(|known| known["pid"].is_u64())?;
    let pid = known["pid"].as_u64()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22; the name before it can contain spaces, and ends at the last parenthesis.
    let began = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse::<u64>()
        .ok()?;
    (Some(began) == known["startTime"].as_u64()).then_some(pid)
}

fn namespace(paths: &NodePaths, uid: &str) -> PathBuf {
    let short: String = uid.chars().take(UID_LEN).collect();
    Path::new("/run/netns").join(format!("{}-{short}", paths.node))
}

fn own_parent(path: &Path) -> Option<PathBuf> {
    let parent = path.parent()?;
    (parent.file_name()? == OWN).then(|| parent.to_owned())
}

/// The entries of a folder, sorted; none if there is no such folder.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort_unstable();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_dormouse_did_not_create_stay() {
        let folder = tempfile::tempdir().unwrap();
        let paths = NodePaths {
            node: "n1".into(),
            bpffs: folder.path().join("pins"),
            state_dir: folder.path().join("state"),
            socket: folder.path().join("agent.sock"),
            bridge: "dormouse0".into(),
            cgroup: folder.path().join("cgroup"),
        };
        for path in ["state/pending-del", "state/pods", "state/logs"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        let foreign = [
            "agent.sock",
            "state/notes.txt",
            "state/pods/notes.txt",
            "state/leases.bak",
        ];
        let own = [
            "state/leases",
            "state/pending-del/.7.new",
            "state/pods/u1.log",
            "state/logs/u1.0.out",
            "state/epoch",
            "state/installed",
            "dormouse-cni",
        ];
        for path in foreign.iter().chain(&own) {
            fs::write(folder.path().join(path), "").unwrap();
        }
        let at = |name: &str| folder.path().join(name);
        for (name, plugin) in [
            ("10-own.conflist", "dormouse-cni"),
            ("20.conflist", "other"),
        ] {
            let text = format!(r#"{{"plugins": [{{"type": "{plugin}"}}]}}"#);
            fs::write(at(name), text).unwrap();
        }
        let recorded = [
            "dormouse-cni",
            "gone/dormouse-agent",
            "10-own.conflist",
            "20.conflist",
        ];
        let lines = recorded.map(|name| format!("{}\n", at(name).display()));
        fs::write(at("state/installed"), lines.concat()).unwrap();
        let removals = removals(&paths).unwrap();
        let files: Vec<_> = removals
            .iter()
            .filter_map(|removal| match removal {
                Removal::File(path) => path.strip_prefix(folder.path()).ok()?.to_str(),
                _ => None,
            })
            .collect();
        assert_eq!(
            files,
            [
                "10-own.conflist",
                "dormouse-cni",
                "state/pending-del/.7.new",
                "state/pods/u1.log",
                "state/logs/u1.0.out",
                "state/epoch",
                "state/installed",
                "state/leases"
            ]
        );
    }

    #[test]
    fn a_process_is_distinguished_from_a_later_one_with_its_pid() {
        let pid = std::process::id();
        let record = |start: u64| serde_json::json!({"state": {"running": {"pid": pid, "startTime": start}}});
        assert_eq!(process(&record(1)), None);
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let began = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .nth(19)
            .unwrap();
        assert_eq!(process(&record(began.parse().unwrap())), Some(pid.into()));
    }
}
