//! `uninstall` removes what an agent made and nothing else: a node is the same before the first start and after it, with all
//! that other programs have on it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Output;

use dormouse_agent_datapath::Pinned;
use dormouse_rig::node::python_in;
use dormouse_rig::{Agent, Call, Netns, Node, binaries, ip, on_node, wait};
use serde_json::json;

fn start(node: &Node) -> Agent {
    let mut command = node.home().run();
    command.args(["--prefix4", "192.0.2.0/24", "--metrics", "[::1]:0"]);
    Agent::serving(&mut command, &node.home().socket())
}

/// What a command writes; it must succeed or fail as expected.
fn says(node: &Node, arguments: &[&str], succeeds: bool) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = node.home().command(arguments).output().unwrap();
    let said = [stdout, stderr]
        .map(|bytes| String::from_utf8(bytes).unwrap())
        .concat();
    assert_eq!(status.success(), succeeds, "{arguments:?}: {said}");
    said
}

/// Has the plugin wire or unwire a pod; where no agent runs, it starts one for this request.
fn plugin(node: &Node, command: &str, container: &str, pod: &Netns) {
    let home = node.home();
    let conf = Call::network(&home.socket(), &home.state_dir());
    let call = Call::new(command, conf).attachment(container, pod.path());
    let offline = json!({"fallback": "offline", "agent": binaries::agent()});
    call.conf(&offline).succeeds();
}

/// The pods that the data path knows.
fn in_data_path(node: &Node) -> Vec<String> {
    let pods = Pinned::open(node.bpffs()).unwrap().pods().unwrap();
    let mut pods: Vec<_> = pods
        .iter()
        .map(|(address, _)| address.to_string())
        .collect();
    pods.sort();
    pods
}

/// Links, routes, neighbours, pins, files and namespaces, a line each.
fn look(node: &Node) -> BTreeSet<String> {
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
        let shown = ip(asked);
        // The kernel's own routes of the outer link come when they come.
        let lines = shown
            .lines()
            .filter(|line| !line.contains("fe80::") && !line.contains("ff00::"));
        all.extend(lines.map(|line| format!("{asked}: {line}")));
    }
    for folder in [node.bpffs(), node.dir()] {
        collect(folder, &mut all);
    }
    all
}

fn collect(folder: &Path, all: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        all.insert(entry.path().display().to_string());
        if entry.path().is_dir() {
            collect(&entry.path(), all);
        }
    }
}

/// Makes links, routes and files that look like the agent's and are not.
fn foreign(node: &Node) {
    ip("link add dm0001000x type bridge");
    ip("link add dmz0 type bridge");
    ip("link add dormouse07 type bridge");
    ip("link set dormouse07 up");
    ip("-6 neighbour add proxy 2001:db8:d0::77 dev eth0");
    ip("-6 route add 2001:db8:a1::/96 via 2001:db8:d0::c dev eth0");
    ip("-6 route add unreachable 2001:db8:a2::/96");
    fs::create_dir(node.home().state_dir()).unwrap();
    fs::write(node.home().state_dir().join("notes.txt"), "keep").unwrap();
}

#[test]
fn uninstall_removes_what_an_agent_made_and_nothing_else() {
    on_node(|node| {
        node.take_address();
        foreign(node);
        // Forwarding is a setting, which stays; its anycast routes come with it.
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        let before = look(node);

        let agent = start(node);
        let pod = node.pod("pod");
        plugin(node, "ADD", "c1", &pod);
        wait("the kernel to stand for the pod", || {
            look(node)
                .iter()
                .any(|line| line.contains("proxy: 2001:db8:d0::1:1:0 "))
        });
        // That of a pod of which nothing else is left.
        ip("-6 neighbour add proxy 2001:db8:d0::1:77:77 dev eth0");
        // An agent that starts takes a link with a pod's name and no holder for the rest of an ADD.
        ip(&format!("link add {NAMESAKE} type bridge"));
        let running = look(node);
        for part in ["dormouse0:", "dm00010000@", "/v6/", "/leases"] {
            assert!(
                running.iter().any(|line| line.contains(part)),
                "{part} is seen: {running:#?}"
            );
        }
        let said = says(node, &["uninstall"], false);
        assert!(
            said.contains("an agent uses") && said.contains("--force"),
            "{said}"
        );
        drop(agent);
        let said = says(node, &["uninstall"], false);
        assert!(said.contains("pods/c1/eth0"), "{said}");
        seen(node, &pod);
        let said = says(node, &["uninstall", "--dry-run"], true);
        assert!(
            said.contains("would remove link dormouse0\n")
                && said.contains("pod pods/c1/eth0 is running"),
            "{said}"
        );
        assert_eq!(look(node), running, "until now nothing has gone");

        // As the writer of the pods' logs, which outlives the agent.
        let logs = node.cgroup().join("dormouse-logs");
        fs::create_dir(&logs).unwrap();
        let sleeps = "import time; time.sleep(1000)";
        let mut writer = python_in(&logs, sleeps).spawn().unwrap();
        let procs = logs.join("cgroup.procs");
        wait("the writer to run", || {
            fs::read_to_string(&procs).is_ok_and(|pids| !pids.is_empty())
        });
        let said = says(node, &["uninstall", "--force"], true);
        assert!(said.contains("removed link dm00010000\n"), "{said}");
        assert!(said.contains("crictl rmp --force c1\n"), "{said}");
        assert!(
            !logs.exists() && !writer.wait().unwrap().success(),
            "{said}"
        );
        same(&before, &look(node));
        assert_eq!(pod.links(), ["lo"], "only loopback is left in the pod");
        assert_eq!(
            says(node, &["uninstall"], true),
            "",
            "a second time there is nothing to do"
        );
        same(&before, &look(node));
    });
}

#[test]
fn uninstall_by_force_ends_the_pods_that_run() {
    on_node(|node| {
        let cgroup = node.cgroup().join("pod-u1");
        fs::create_dir(&cgroup).unwrap();
        let sleeps = "import time; time.sleep(1000)";
        let mut process = python_in(&cgroup, sleeps).spawn().unwrap();
        let procs = cgroup.join("cgroup.procs");
        wait("the pod to run", || {
            fs::read_to_string(&procs).is_ok_and(|pids| !pids.is_empty())
        });
        let _namespace = node.pod("u1");
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        let began: u64 = fields[19].parse().unwrap();
        let running = json!({"pid": process.id(), "startTime": began});
        let record = json!({"name": "shop/web-1", "state": {"running": running}});
        fs::create_dir_all(node.record("u1").parent().unwrap()).unwrap();
        fs::write(node.record("u1"), record.to_string()).unwrap();

        let said = says(node, &["uninstall"], false);
        assert!(said.contains("shop/web-1 (process "), "{said}");
        assert!(process.try_wait().unwrap().is_none(), "it still runs");
        let said = says(node, &["uninstall", "--force"], true);
        assert!(!process.wait().unwrap().success(), "{said}");
        node.assert_nothing_is_left("u1");
    });
}

#[test]
fn a_pod_that_went_while_no_agent_ran_leaves_the_data_path() {
    on_node(|node| {
        node.take_address();
        let pods = ["a", "b"].map(|name| node.pod(name));
        let agent = start(node);
        plugin(node, "ADD", "a", &pods[0]);
        let first = ["2001:db8:d0::1:1:0", "::ffff:192.0.2.2"];
        let second = ["2001:db8:d0::1:1:1", "::ffff:192.0.2.3"];
        assert_eq!(in_data_path(node), first);
        drop(agent);
        // Noted, and done by the one that serves the next request, which knows of no data path.
        plugin(node, "DEL", "a", &pods[0]);
        plugin(node, "ADD", "b", &pods[1]);
        let links = look(node);
        let has = |link: &str| links.iter().any(|line| line.contains(link));
        assert!(!has("dm00010000@") && has("dm00010001@"), "{links:#?}");
        assert_eq!(in_data_path(node), first);
        let agent = start(node);
        wait("the data path to know the pods that live", || {
            in_data_path(node) == second
        });
        drop(agent);
    });
}

/// Another program's link with a pod's name.
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
fn seen(node: &Node, pod: &Netns) {
    let pods = says(node, &["get", "pods", "-o", "json"], true);
    let pods: serde_json::Value = serde_json::from_str(&pods).unwrap();
    let found = &pods["items"][0];
    assert_eq!(found["holder"], "pods/c1/eth0");
    assert_eq!(found["interface"], "dm00010000");
    assert_eq!(found["bridge"], "dormouse0");
    assert_eq!(found["netns"], pod.path().to_str().unwrap());
    assert_eq!(found["inDataPath"], true);
    assert_eq!(found["address4"], "192.0.2.2");
    let address = found["address"].as_str().unwrap();
    let addresses = says(node, &["get", "addresses"], true);
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
    let neighbours = says(node, &["get", "neighbours"], true);
    for part in [
        "permanent",
        "dormouse0",
        "pods/c1/eth0",
        "2001:db8:d0::77",
        "solicitations at the uplink: 0",
    ] {
        assert!(neighbours.contains(part), "{neighbours}");
    }
    let explained = says(node, &["explain", "address", address], true);
    let by_ipv4 = says(node, &["explain", "address", "192.0.2.2"], true);
    let whose = "pod        pods/c1/eth0, live for ";
    for part in [whose, "data path  pod on interface 65536"] {
        assert!(by_ipv4.contains(part), "{by_ipv4}");
    }
    for part in [
        whose,
        "IPv4       192.0.2.2",
        "number     0 of cohort 64",
        "link       dm00010000 (number 65536), port of dormouse0",
        &format!("netns      {}", pod.path().display()),
        "neighbour  02:d0:00:01:00:00 on dormouse0, permanent",
        "data path  pod on interface 65536",
        "in         node prefix",
    ] {
        assert!(explained.contains(part), "{explained}");
    }
}
