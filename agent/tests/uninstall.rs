//! What an agent made goes again, and nothing else: a node before the first start and after `uninstall` is the same, with
//! all that others have on it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "runtime/ground.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod ground;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use dormouse_agent_datapath::Pinned;
use dormouse_agent_sys::netns;
use ground::{Ground, ip, plugin, wait};
use serde_json::json;

const NODE_ADDRESS: &str = "2001:db8:d0:0:0:1:0:1";

/// Killed when the test ends, however it ends.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Its pins go with it, however the test ends.
struct Node<'a>(&'a Ground);

impl Drop for Node<'_> {
    fn drop(&mut self) {
        let _ = dormouse_agent_datapath::detach(&self.0.bpffs());
    }
}

impl Node<'_> {
    fn agent(&self) -> Agent {
        let child = self
            .0
            .command(&[
                "run",
                "--uplink",
                "eth0",
                "--runtime",
                "none",
                "--metrics",
                "[::1]:0",
            ])
            .args([
                "--prefix",
                "2001:db8:d0:0:0:1::/96",
                "--prefix4",
                "192.0.2.0/24",
                "--address",
                NODE_ADDRESS,
            ])
            .stdin(Stdio::null())
            .spawn();
        let agent = Agent(child.unwrap());
        wait("the agent to serve", || {
            UnixStream::connect(self.0.socket()).is_ok()
        });
        agent
    }

    /// What a command says, if it ends as it should.
    fn says(&self, arguments: &[&str], succeeds: bool) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.0.command(arguments).output().unwrap();
        let said = [stdout, stderr]
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .concat();
        assert_eq!(status.success(), succeeds, "{arguments:?}: {said}");
        said
    }

    /// Has the plugin wire or unwire a pod; where no agent runs, one serves the request and no more.
    fn plugin(&self, command: &str, container: &str, netns: &Path) {
        let conf = self.0.dir().join("conf.json");
        let text = json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "dormouse",
            "socket": self.0.socket(), "stateDir": self.0.state_dir(),
            "fallback": "offline", "agent": env!("CARGO_BIN_EXE_dormouse-agent"),
        });
        fs::write(&conf, text.to_string()).unwrap();
        let done = Command::new(plugin())
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", netns)
            .env("CNI_IFNAME", "eth0")
            .stdin(File::open(conf).unwrap())
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stdout)
        );
    }

    /// The pods that the data path knows.
    fn in_data_path(&self) -> Vec<String> {
        let pods = Pinned::open(&self.0.bpffs()).unwrap().pods().unwrap();
        let mut pods: Vec<_> = pods
            .iter()
            .map(|(address, _)| address.to_string())
            .collect();
        pods.sort();
        pods
    }

    /// Links, routes, neighbours, pins, files and namespaces, a line each.
    fn look(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for asked in [
            "-o link show",
            "-6 route show table all",
            "-6 rule show",
            "-6 neighbour show nud permanent",
            "-6 neighbour show proxy",
            "-4 route show table all",
            "-4 neighbour show nud permanent",
        ] {
            let shown = Command::new("ip").args(asked.split(' ')).output().unwrap();
            let shown = String::from_utf8(shown.stdout).unwrap();
            // The kernel's own routes of the outer link come when they come.
            let lines = shown
                .lines()
                .filter(|line| !line.contains("fe80::") && !line.contains("ff00::"));
            all.extend(lines.map(|line| format!("{asked}: {line}")));
        }
        for folder in [self.0.bpffs(), self.0.dir().to_owned()] {
            collect(&folder, &mut all);
        }
        all
    }
}

fn collect(folder: &Path, all: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        all.insert(entry.path().display().to_string());
        if entry.path().is_dir() {
            collect(&entry.path(), all);
        }
    }
}

/// Looks like ours, and is not.
fn foreign(node: &Node<'_>) {
    ip("link add dm0001000x type bridge");
    ip("link add dmz0 type bridge");
    ip("link add dormouse07 type bridge");
    ip("link set dormouse07 up");
    ip("-6 neighbour add proxy 2001:db8:d0::77 dev eth0");
    ip("-6 route add 2001:db8:a1::/96 via 2001:db8:d0::c dev eth0");
    ip("-6 route add unreachable 2001:db8:a2::/96");
    fs::create_dir(node.0.state_dir()).unwrap();
    fs::write(node.0.state_dir().join("notes.txt"), "keep").unwrap();
}

#[test]
fn what_an_agent_made_goes_and_what_others_made_stays() {
    ground::stand(|ground| {
        let node = Node(ground);
        ip(&format!("-6 address add {NODE_ADDRESS}/64 dev eth0 nodad"));
        // The plugin's configuration is the operator's.
        fs::write(ground.dir().join("conf.json"), "").unwrap();
        foreign(&node);
        // Forwarding is a setting, which stays; its anycast routes come with it.
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        let before = node.look();

        let agent = node.agent();
        let pod = PathBuf::from(format!("/run/netns/{}-pod", ground.node));
        netns::create(&pod).unwrap();
        node.plugin("ADD", "c1", &pod);
        wait("the kernel to stand for the pod", || {
            node.look()
                .iter()
                .any(|line| line.contains("proxy: 2001:db8:d0::1:1:0 "))
        });
        // That of a pod of which nothing else is left.
        ip("-6 neighbour add proxy 2001:db8:d0::1:77:77 dev eth0");
        // An agent that starts takes a link with a pod's name and no holder for the rest of an ADD.
        ip(&format!("link add {NAMESAKE} type bridge"));
        let running = node.look();
        for part in ["dormouse0:", "dm00010000@", "/v5/", "/leases"] {
            assert!(
                running.iter().any(|line| line.contains(part)),
                "{part} is seen: {running:#?}"
            );
        }
        let said = node.says(&["uninstall"], false);
        assert!(
            said.contains("an agent uses") && said.contains("--force"),
            "{said}"
        );
        drop(agent);
        let said = node.says(&["uninstall"], false);
        assert!(said.contains("pods/c1/eth0"), "{said}");
        seen(&node, &pod);
        let said = node.says(&["uninstall", "--dry-run"], true);
        assert!(
            said.contains("would remove link dormouse0\n")
                && said.contains("pod pods/c1/eth0 is running"),
            "{said}"
        );
        assert_eq!(node.look(), running, "until now nothing has gone");

        let said = node.says(&["uninstall", "--force"], true);
        assert!(said.contains("removed link dm00010000\n"), "{said}");
        same(&before, &node.look());
        let inside = netns::enter(File::open(&pod).unwrap().as_fd(), || {
            Ok(nix::net::if_::if_nameindex()?.iter().count())
        });
        assert_eq!(inside.unwrap(), 1, "only loopback is left in the pod");
        assert_eq!(
            node.says(&["uninstall"], true),
            "",
            "a second time there is nothing to do"
        );
        same(&before, &node.look());
        netns::remove(&pod).unwrap();
    });
}

#[test]
fn a_pod_that_went_while_no_agent_ran_leaves_the_data_path() {
    ground::stand(|ground| {
        let node = Node(ground);
        ip(&format!("-6 address add {NODE_ADDRESS}/64 dev eth0 nodad"));
        let pods = ["a", "b"].map(|name| {
            let path = PathBuf::from(format!("/run/netns/{}-{name}", ground.node));
            netns::create(&path).unwrap();
            path
        });
        let agent = node.agent();
        node.plugin("ADD", "a", &pods[0]);
        let first = ["2001:db8:d0::1:1:0", "::ffff:192.0.2.2"];
        let second = ["2001:db8:d0::1:1:1", "::ffff:192.0.2.3"];
        assert_eq!(node.in_data_path(), first);
        drop(agent);
        // Noted, and done by the one that serves the next request, which knows of no data path.
        node.plugin("DEL", "a", &pods[0]);
        node.plugin("ADD", "b", &pods[1]);
        let links = node.look();
        let has = |link: &str| links.iter().any(|line| line.contains(link));
        assert!(!has("dm00010000@") && has("dm00010001@"), "{links:#?}");
        assert_eq!(node.in_data_path(), first);
        let agent = node.agent();
        wait("the data path to know the pods that live", || {
            node.in_data_path() == second
        });
        drop(agent);
        for path in &pods {
            netns::remove(path).unwrap();
        }
    });
}

/// A stranger with a pod's name.
const NAMESAKE: &str = "dm00010009";

fn same(before: &BTreeSet<String>, after: &BTreeSet<String>) {
    let (namesake, after): (BTreeSet<_>, BTreeSet<_>) = after
        .iter()
        .cloned()
        .partition(|line| line.contains(NAMESAKE));
    assert!(!namesake.is_empty(), "{NAMESAKE} stays");
    let (gone, left): (Vec<_>, Vec<_>) = (
        before.difference(&after).collect(),
        after.difference(before).collect(),
    );
    assert!(
        gone.is_empty() && left.is_empty(),
        "gone: {gone:#?}\nleft: {left:#?}"
    );
}

/// While no agent runs, the pod is shown from journal and kernel.
fn seen(node: &Node<'_>, pod: &Path) {
    let pods = node.says(&["get", "pods", "-o", "json"], true);
    let pods: serde_json::Value = serde_json::from_str(&pods).unwrap();
    let found = &pods["items"][0];
    assert_eq!(found["holder"], "pods/c1/eth0");
    assert_eq!(found["interface"], "dm00010000");
    assert_eq!(found["bridge"], "dormouse0");
    assert_eq!(found["netns"], pod.to_str().unwrap());
    assert_eq!(found["inDataPath"], true);
    assert_eq!(found["address4"], "192.0.2.2");
    let address = found["address"].as_str().unwrap();
    let addresses = node.says(&["get", "addresses"], true);
    // A link with a pod's name but without a lease is shown, although another program may have created it.
    for part in [
        address,
        "live",
        "pods/c1/eth0",
        "stray",
        "no lease: the next start",
    ] {
        assert!(addresses.contains(part), "{addresses}");
    }
    let neighbours = node.says(&["get", "neighbours"], true);
    for part in [
        "permanent",
        "dormouse0",
        "pods/c1/eth0",
        "2001:db8:d0::77",
        "solicitations at the uplink: 0",
    ] {
        assert!(neighbours.contains(part), "{neighbours}");
    }
    let explained = node.says(&["explain", "address", address], true);
    let by_ipv4 = node.says(&["explain", "address", "192.0.2.2"], true);
    let whose = "pod        pods/c1/eth0, live for ";
    for part in [whose, "data path  pod on interface 65536"] {
        assert!(by_ipv4.contains(part), "{by_ipv4}");
    }
    for part in [
        whose,
        "IPv4       192.0.2.2",
        "number     0 of cohort 64",
        "link       dm00010000 (number 65536), port of dormouse0",
        &format!("netns      {}", pod.display()),
        "neighbour  02:d0:00:01:00:00 on dormouse0, permanent",
        "data path  pod on interface 65536",
        "in         node prefix",
    ] {
        assert!(explained.contains(part), "{explained}");
    }
}
