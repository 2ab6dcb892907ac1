//! The DaemonSet of `deploy/` in a container runtime, with its security contexts (but AppArmor, which is off here) and mounts: it serves pods, is replaced under load without
//! a lost connection, leaves the data path when it is deleted, and `uninstall` cleans the node.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dormouse_rig::load::Load;
use dormouse_rig::server::Server;
use dormouse_rig::{Node, Sockets, address, on_node, wait};
use dormouse_world::enter;
use serde_json::json;

use crate::containerd::Containerd;
use crate::daemonset::NodePod;
use crate::machine::{Machine, await_no_pod, dial, namespaces, pod_links, succeed};
use crate::node_image;

/// Time limit of a read. Only a failure is this slow.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// A connection from the node to a pod, which must outlive the agent.
struct Connection {
    node: TcpStream,
    pod: TcpStream,
}

impl Connection {
    fn open(pod: &Path, address: Ipv6Addr) -> Self {
        let listener = enter(pod, || TcpListener::bind((address, 0)))
            .unwrap()
            .unwrap();
        let node = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (pod, _) = listener.accept().unwrap();
        for end in [&node, &pod] {
            end.set_read_timeout(Some(READ_LIMIT)).unwrap();
        }
        Self { node, pod }
    }

    /// Fails unless it carries data both ways.
    fn check(&self) {
        for (mut from, mut to) in [(&self.node, &self.pod), (&self.pod, &self.node)] {
            from.write_all(b"x").unwrap();
            to.read_exact(&mut [0]).unwrap();
        }
    }
}

/// The Service under load, and the port of its pod.
const VIP: &str = "[fd00:20::7]:80";
const POD_PORT: u16 = 8_080;
/// The folder of manifests, which the agent reads in its state folder.
const MANIFESTS: &str = "/var/lib/dormouse/manifests";
/// Connections of the load in each phase.
const PHASE: u64 = 300;

/// Writes the Service with its only endpoint, as a whole.
fn write_service(address: Ipv6Addr) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "type": "ClusterIP", "clusterIP": "fd00:20::7", "clusterIPs": ["fd00:20::7"], "ipFamilies": ["IPv6"],
            "ports": [{"name": "p", "protocol": "TCP", "port": 80, "targetPort": POD_PORT}],
        },
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv6",
        "metadata": {
            "namespace": "shop", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"},
        },
        "ports": [{"name": "p", "protocol": "TCP", "port": POD_PORT}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
    });
    let fresh = Path::new(MANIFESTS).join(".new");
    fs::write(&fresh, format!("{service}\n---\n{slice}\n")).unwrap();
    fs::rename(fresh, Path::new(MANIFESTS).join("web.yaml")).unwrap();
}

/// The only namespace that is not among these.
fn namespace_beside(known: &[PathBuf]) -> PathBuf {
    let mut all = namespaces();
    all.retain(|path| !known.contains(path));
    let [one] = &all[..] else {
        panic!("{all:?}");
    };
    one.clone()
}

/// Starts a pod, and returns its id, its namespace and its address.
fn start_pod(containerd: &mut Containerd<'_>, name: &str) -> (String, PathBuf, Ipv6Addr) {
    let known = namespaces();
    let config = containerd.pod(name);
    let id = containerd.cri.run_pod(config).unwrap();
    let address = containerd.cri.address(&id).parse().unwrap();
    (id, namespace_beside(&known), address)
}

#[test]
fn the_daemonset_runs_as_it_is_written_and_is_replaced_and_removed() {
    on_node(|node| {
        let machine = Machine::bare(node);
        let mut containerd = Containerd::unready(&machine);
        assert!(!containerd.cri.network_ready());
        for name in [node_image::NAME, node_image::NEXT] {
            containerd.import(&node_image::node(machine.folder(), name), name);
        }

        let logs = machine.folder().join("logs");
        let mut set = start_set(node, &machine, &mut containerd, &logs);
        set.initialize(&mut containerd);
        let agent = set.run_agent(&mut containerd);
        let conflist = machine.networks().join("10-dormouse.conflist");
        wait("the network configuration", || {
            let ended = containerd.cri.exit_code(&agent);
            assert_eq!(ended, None, "{}", read_logs(&logs));
            conflist.exists()
        });
        wait("the network", || containerd.cri.network_ready());
        let (first, namespace, at) = start_pod(&mut containerd, "first");
        dial(&namespace, at);
        let connection = Connection::open(&namespace, at);
        connection.check();
        let server = Server::light(&Sockets::bare(&namespace), POD_PORT);
        write_service(at);
        let (client, namespace, _) = start_pod(&mut containerd, "client");
        let vip = VIP.parse().unwrap();
        let sockets = Sockets::bare(&namespace);
        wait("the Service", || sockets.dial(vip).is_ok());
        let load = Load::connections("a pod through the Service", &sockets, vip);
        load.go_on(PHASE);

        // A rollout: the agent's pod ends, and that of the next version starts. Meanwhile, pods come and go.
        containerd.cri.remove_container(&agent);
        connection.check();
        load.go_on(PHASE);
        set.replace(&mut containerd, node_image::NEXT);
        let (second, namespace, at) = start_pod(&mut containerd, "second");
        dial(&namespace, at);
        set.initialize(&mut containerd);
        let agent = set.run_agent(&mut containerd);
        wait("the agent to serve", is_ready);
        connection.check();
        dial(&namespace, at);
        load.go_on(PHASE);

        // The DaemonSet is deleted: the data path goes on.
        containerd.cri.remove_container(&agent);
        containerd.cri.remove_pod(set.id());
        connection.check();
        load.go_on(PHASE);
        let outcome = load.end();
        assert_eq!(outcome.failed, 0, "{outcome}");
        assert!(node.bpffs().exists() && conflist.exists());
        fs::remove_dir_all(MANIFESTS).unwrap();
        // Their sockets keep the pods' namespaces.
        drop((connection, server, sockets));
        for pod in [first, second, client] {
            containerd.cri.remove_pod(&pod);
        }
        await_no_pod();
        uninstall(node, &machine, &conflist);
    });
}

/// Starts the DaemonSet's pod, with this test's folders and settings.
fn start_set(
    node: &Node,
    machine: &Machine<'_>,
    containerd: &mut Containerd<'_>,
    logs: &Path,
) -> NodePod {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let folders = BTreeMap::from([
        ("/opt/cni/bin", text(&machine.plugins())),
        ("/etc/cni/net.d", text(&machine.networks())),
        ("/sys/fs/cgroup", text(node.cgroup())),
    ]);
    let flags = [
        ("DORMOUSE_NODE", node.name().to_owned()),
        ("DORMOUSE_PREFIX", address::PREFIX.to_owned()),
        ("DORMOUSE_ADDRESS", address::NODE.to_string()),
        ("DORMOUSE_METRICS", "[::1]:10249".to_owned()),
        ("DORMOUSE_MANIFESTS", MANIFESTS.to_owned()),
        ("DORMOUSE_SERVICE_RANGES", "fd00:20::/112".to_owned()),
    ];
    fs::create_dir_all(MANIFESTS).unwrap();
    fs::create_dir(logs).unwrap();
    NodePod::start(containerd, logs, &flags, folders)
}

/// Uninstalls Dormouse by the installed program; nothing is left of it.
fn uninstall(node: &Node, machine: &Machine<'_>, conflist: &Path) {
    as_on_this_node(machine);
    let mut uninstall = Command::new(machine.plugins().join("dormouse-agent"));
    uninstall.args(["uninstall", "--node", node.name(), "--cgroup"]);
    let said = succeed(uninstall.arg(node.cgroup()));
    assert!(said.contains("10-dormouse.conflist"), "{said}");
    for gone in [
        conflist.to_owned(),
        machine.plugins().join("dormouse-cni"),
        machine.plugins().join("dormouse-agent"),
        node.bpffs().to_owned(),
        "/var/lib/dormouse".into(),
        "/run/dormouse".into(),
    ] {
        assert!(!gone.exists(), "{}: {said}", gone.display());
    }
    assert!(pod_links().is_empty(), "{said}");
}

/// Changes the record of installed files, which has the paths of a real node, to where these are on this one.
fn as_on_this_node(machine: &Machine<'_>) {
    let record = Path::new("/var/lib/dormouse/installed");
    let text = fs::read_to_string(record).unwrap();
    let plugins = machine.plugins().display().to_string();
    let networks = machine.networks().display().to_string();
    let text = text.replace("/opt/cni/bin", &plugins);
    fs::write(record, text.replace("/etc/cni/net.d", &networks)).unwrap();
}

fn is_ready() -> bool {
    let answer = TcpStream::connect("[::1]:10249").and_then(|mut stream| {
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    });
    answer.is_ok_and(|text| text.starts_with("HTTP/1.1 200 "))
}

/// What the containers wrote.
fn read_logs(folder: &Path) -> String {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .map(|file| fs::read_to_string(file.path()).unwrap_or_default())
        .collect()
}
