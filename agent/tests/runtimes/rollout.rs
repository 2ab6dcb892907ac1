//! The DaemonSet of `deploy/` in a container runtime, with its security contexts (but AppArmor, which is off here) and mounts: it serves pods, is replaced while
//! connections continue, leaves the data path when it is deleted, and `uninstall` cleans the node.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dormouse_rig::{address, on_node, wait};
use dormouse_world::enter;

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
        let archive = node_image::node(machine.folder());
        containerd.import(&archive, node_image::NAME);

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
        ];
        let logs = machine.folder().join("logs");
        fs::create_dir(&logs).unwrap();
        let mut set = NodePod::start(&mut containerd, &logs, &flags, folders);
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

        // A rollout: the agent ends, and the next version starts. Meanwhile, pods come and go.
        containerd.cri.remove_container(&agent);
        connection.check();
        let (second, namespace, at) = start_pod(&mut containerd, "second");
        dial(&namespace, at);
        set.initialize(&mut containerd);
        let agent = set.run_agent(&mut containerd);
        wait("the agent to serve", is_ready);
        connection.check();
        dial(&namespace, at);

        // The DaemonSet is deleted: the data path goes on.
        containerd.cri.remove_container(&agent);
        containerd.cri.remove_pod(set.id());
        connection.check();
        assert!(node.bpffs().exists() && conflist.exists());
        // Its socket keeps the pod's namespace.
        drop(connection);
        for pod in [first, second] {
            containerd.cri.remove_pod(&pod);
        }
        await_no_pod();
        as_on_this_node(&machine);
        let mut uninstall = Command::new(machine.plugins().join("dormouse-agent"));
        uninstall.args(["uninstall", "--node", node.name(), "--cgroup"]);
        let said = succeed(uninstall.arg(node.cgroup()));
        assert!(said.contains("10-dormouse.conflist"), "{said}");
        for gone in [
            conflist,
            machine.plugins().join("dormouse-cni"),
            machine.plugins().join("dormouse-agent"),
            node.bpffs().to_owned(),
            "/var/lib/dormouse".into(),
            "/run/dormouse".into(),
        ] {
            assert!(!gone.exists(), "{}: {said}", gone.display());
        }
        assert!(pod_links().is_empty(), "{said}");
    });
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
