//! First contact: real container runtimes, as Debian ships them, with the configuration as shipped.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says why and ends"
)]

mod containerd;
mod cri;
mod daemonset;
mod image;
mod machine;
mod node_image;
mod podman;
mod rollout;

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::net::Ipv6Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use containerd::Containerd;
use dormouse_rig::frame::{Mac, solicitation};
use dormouse_rig::{Tap, ip, on_node};
use machine::{Machine, await_no_pod, dial, namespaces, pod_links, succeed};
use podman::Podman;

const REQUESTED: &str = "2001:db8:d0:0:0:1:0:42";
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const GATEWAY_MAC: Mac = [2, 0xd0, 0, 0, 0, 1];
const MAC: &str = "02:00:5e:10:20:30";

/// Writes files in place of the image's programs, which are this old.
fn write_programs(folder: &Path, modified: SystemTime) {
    fs::create_dir(folder).unwrap();
    for name in ["dormouse-agent", "dormouse-cni"] {
        let file = File::create(folder.join(name)).unwrap();
        (&file).write_all(name.as_bytes()).unwrap();
        file.set_permissions(Permissions::from_mode(0o755)).unwrap();
        file.set_modified(modified).unwrap();
    }
}

/// A refused request for a port of the node names the alternatives, and leaves nothing.
fn assert_refused(error: &str) {
    for part in ["runtimeConfig.portMappings", "8080", "NodePort", "portmap"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(pod_links().is_empty());
}

/// Solicits the gateway from forged senders, as a process of the container with CAP_NET_RAW can: the node learns none of them.
fn assert_forgers_are_not_learned(container: &Path) {
    let tap = Tap::on(container, "eth0");
    for sender in 0..2_000_u32 {
        let [a, b, c, d] = sender.to_be_bytes();
        let mac = [2, 0xee, a, b, c, d];
        let source = Ipv6Addr::from_bits(0xfe80 << 112 | 0xee << 32 | u128::from(sender));
        tap.send(&solicitation(
            (mac, GATEWAY_MAC),
            (source, GATEWAY),
            GATEWAY,
            &[&[1, 1][..], &mac].concat(),
        ));
    }
    let neighbors = ip("-6 neighbour show nud all");
    assert!(!neighbors.contains("fe80::ee:"), "{neighbors}");
}

#[test]
fn containerd_runs_pods_as_a_kubelet_asks_it_to() {
    on_node(|node| {
        let machine = Machine::start(node);
        let mut containerd = Containerd::start(&machine);
        let pod = containerd.pod("plain");
        let plain = containerd.cri.run_pod(pod).unwrap();
        let address: Ipv6Addr = containerd.cri.address(&plain).parse().unwrap();
        let namespaces = namespaces();
        let [namespace] = &namespaces[..] else {
            panic!("one pod has {namespaces:?}");
        };
        dial(namespace, address);
        containerd.cri.remove_pod(&plain);
        await_no_pod();

        let limit = "kubernetes.io/ingress-bandwidth";
        let pod = containerd.pod("slow").annotate(limit, "8M");
        let slow = containerd.cri.run_pod(pod).unwrap();
        let queues = succeed(Command::new("tc").args(["qdisc", "show"]));
        assert!(
            queues.contains("tbf") && queues.contains("rate 8Mbit"),
            "{queues}"
        );
        containerd.cri.remove_pod(&slow);
        await_no_pod();

        let pod = containerd.pod("ports").port(8080, 80);
        let error = containerd.cri.run_pod(pod).unwrap_err();
        assert_refused(error.message());
    });
}

#[test]
fn podman_runs_containers_with_requested_addresses() {
    on_node(|node| {
        let machine = Machine::start(node);
        let podman = Podman::start(&machine);
        let plain = podman.start_container("plain", &[]);
        dial(plain.namespace(), plain.address());
        let wanted = ["--ip6", REQUESTED, "--mac-address", MAC];
        let chosen = podman.start_container("chosen", &wanted);
        assert_eq!(chosen.address(), REQUESTED.parse::<Ipv6Addr>().unwrap());
        assert_eq!(chosen.mac(), MAC);
        dial(chosen.namespace(), chosen.address());
        assert_forgers_are_not_learned(chosen.namespace());
        dial(chosen.namespace(), chosen.address());
        let again = podman.restart("chosen");
        assert_eq!(again.address(), chosen.address());
        dial(again.namespace(), again.address());
        for name in ["plain", "chosen"] {
            podman.remove(name);
        }
        await_no_pod();
        let error = podman.refuse("ports", &["--publish", "8080:80"]);
        assert_refused(&error);
    });
}

#[test]
fn two_builds_of_the_containerfile_from_the_same_programs_are_equal_by_digest() {
    on_node(|node| {
        let machine = Machine::bare(node);
        let podman = Podman::start(&machine);
        let builds = [("first", 1_000), ("second", 2_000)].map(|(name, seconds)| {
            let folder = machine.folder().join(name);
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            write_programs(&folder, modified);
            podman.build(&folder)
        });
        assert!(!builds[0].is_empty());
        assert_eq!(builds[0], builds[1]);
    });
}
