//! Arrows between packages and between the agent's modules: they point one way, and pure cores stay pure.

mod modules;

/// Packages that are programs: no package depends on them.
const PROGRAMS: [&str; 3] = ["dormouse-agent", "dormouse", "xtask"];

/// Packages for tests: programs must not contain them.
const FOR_TESTS: [(&str, &str); 6] = [
    (
        "dormouse-agent-services-oracle",
        "agent/services/oracle/Cargo.toml",
    ),
    (
        "dormouse-agent-services-samples",
        "agent/services/samples/Cargo.toml",
    ),
    (
        "dormouse-fleet-simulation",
        "control/fleet/simulation/Cargo.toml",
    ),
    ("dormouse-rig", "xtask/rig/Cargo.toml"),
    ("dormouse-store-checker", "control/store/checker/Cargo.toml"),
    ("dormouse-vectors", "xtask/vectors/Cargo.toml"),
];

/// What would give a pure core a clock, a thread or a socket.
const SHELLS: [&str; 6] = ["aya", "hyper", "nix", "rtnetlink", "tokio", "tonic"];

/// Manifests of pure cores: what they compute depends on their arguments alone, so tests take microseconds.
const PURE: [&str; 9] = [
    "agent/follow/Cargo.toml",
    "agent/ipam/Cargo.toml",
    "agent/services/Cargo.toml",
    "control/autoscaler/Cargo.toml",
    "control/nodes/Cargo.toml",
    "control/scheduler/columns/Cargo.toml",
    "control/scheduler/decide/Cargo.toml",
    "control/scheduler/shard/Cargo.toml",
    "xtask/image/Cargo.toml",
];

/// The store serves other clusters too: it knows no member but its journal, etcd's snapshot files, the certificates of servers and the bounds of
/// handshakes, and those none of a cluster.
const STORE: [(&str, &[&str]); 7] = [
    ("control/handshakes/Cargo.toml", &[]),
    (
        "control/store/Cargo.toml",
        &[
            "dormouse-handshakes",
            "dormouse-snapshot",
            "dormouse-trust",
            "dormouse-wal",
        ],
    ),
    (
        "control/trust/Cargo.toml",
        &["dormouse-files", "dormouse-handshakes"],
    ),
    ("control/files/Cargo.toml", &[]),
    ("control/store/snapshot/Cargo.toml", &["dormouse-bbolt"]),
    ("control/store/bbolt/Cargo.toml", &[]),
    ("control/store/wal/Cargo.toml", &[]),
];

/// The agent's packages, and the members that each builds on.
const AGENT: [(&str, &[&str]); 10] = [
    ("agent/follow/Cargo.toml", &[]),
    ("agent/ipam/Cargo.toml", &[]),
    ("agent/services/Cargo.toml", &[]),
    (
        "agent/services/oracle/Cargo.toml",
        &["dormouse-agent-services"],
    ),
    ("agent/netlink/Cargo.toml", &[]),
    ("agent/sys/Cargo.toml", &["dormouse-agent-ipam"]),
    (
        "agent/logs/Cargo.toml",
        &["dormouse-agent-sys", "dormouse-files"],
    ),
    (
        "agent/datapath/Cargo.toml",
        &[
            "dormouse-agent-netlink",
            "dormouse-agent-services",
            "dormouse-agent-sys",
            "dormouse-ebpf",
        ],
    ),
    (
        "agent/pod/Cargo.toml",
        &[
            "dormouse-agent-datapath",
            "dormouse-agent-ipam",
            "dormouse-agent-netlink",
            "dormouse-agent-sys",
            "dormouse-cni",
            "dormouse-files",
        ],
    ),
    (
        "agent/inspect/Cargo.toml",
        &[
            "dormouse-agent-datapath",
            "dormouse-agent-ipam",
            "dormouse-agent-netlink",
            "dormouse-agent-pod",
            "dormouse-agent-services",
            "dormouse-cni",
            "dormouse-command",
            "dormouse-ebpf",
        ],
    ),
];

/// The dependencies of the manifest `path` that it must not have, or the uses of a module's file.
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    if !path.ends_with("Cargo.toml") {
        return modules::check(path, text);
    }
    let broken = dependencies(text).into_iter().filter_map(|name| {
        let reason = refusal(path, name)?;
        Some(format!("depends on {name}, but {reason}"))
    });
    broken.collect()
}

fn refusal(path: &str, name: &str) -> Option<&'static str> {
    if PROGRAMS.contains(&name) {
        return Some("nothing builds on a program");
    }
    let for_tests = FOR_TESTS.iter().any(|(package, _)| *package == name);
    let is_for_tests = FOR_TESTS.iter().any(|(_, manifest)| *manifest == path);
    if for_tests && !is_for_tests {
        return Some("it is for tests: make it a dev-dependency");
    }
    if PURE.contains(&path) && SHELLS.contains(&name) {
        return Some("it is a pure core");
    }
    if is_unlisted(&AGENT, (path, name)) {
        return Some("the agent's packages build on no others than `tidy` lists");
    }
    is_unlisted(&STORE, (path, name)).then_some("the store knows no other member")
}

/// Whether a member is not among those on which this package builds.
fn is_unlisted(packages: &[(&str, &[&str])], (path, name): (&str, &str)) -> bool {
    let known = packages.iter().find(|(manifest, _)| path == *manifest);
    name.starts_with("dormouse-") && known.is_some_and(|(_, members)| !members.contains(&name))
}

/// The names below `[dependencies]` and `[target.….dependencies]`; tests may depend on more.
fn dependencies(text: &str) -> Vec<&str> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line == "[dependencies]" || line.ends_with(".dependencies]");
            inside &= line != "[workspace.dependencies]";
        } else if inside {
            names.extend(
                line.split(['.', ' ', '='])
                    .next()
                    .filter(|name| !name.is_empty()),
            );
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_builds_on_a_program() {
        let manifest = "[dependencies]\nserde.workspace = true\ndormouse-agent.workspace = true\n";
        assert_eq!(
            check("control/apps/Cargo.toml", manifest),
            ["depends on dormouse-agent, but nothing builds on a program"]
        );
    }

    #[test]
    fn only_tests_use_the_rig() {
        let manifest = "[dependencies]\ndormouse-rig.workspace = true\n[dev-dependencies]\ndormouse-rig.workspace = true\n";
        assert_eq!(
            check("agent/Cargo.toml", manifest),
            ["depends on dormouse-rig, but it is for tests: make it a dev-dependency"]
        );
    }

    #[test]
    fn a_pure_core_has_no_runtime_but_its_tests_may() {
        let manifest =
            "[dependencies]\ntokio = { workspace = true }\n[dev-dependencies]\ntonic = \"1\"\n";
        assert_eq!(
            check("control/autoscaler/Cargo.toml", manifest),
            ["depends on tokio, but it is a pure core"]
        );
        assert!(check("control/apps/Cargo.toml", manifest).is_empty());
    }

    #[test]
    fn the_agents_packages_point_one_way() {
        let manifest = "[dependencies]\ndormouse-agent-pod.workspace = true\n";
        assert!(check("agent/inspect/Cargo.toml", manifest).is_empty());
        assert_eq!(check("agent/datapath/Cargo.toml", manifest).len(), 1);
    }

    #[test]
    fn the_store_knows_no_other_member() {
        let manifest = "[target.'cfg(unix)'.dependencies]\ndormouse-cluster.workspace = true\n";
        for (path, _) in STORE {
            assert_eq!(check(path, manifest).len(), 1);
        }
    }

    #[test]
    fn the_list_of_versions_is_no_dependency() {
        let manifest = "[workspace.dependencies]\ndormouse-agent = { path = \"agent\" }\n";
        assert!(check("Cargo.toml", manifest).is_empty());
    }
}
