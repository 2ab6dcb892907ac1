//! From kube-proxy to the agent under a load of new connections: its rules serve first, then the data path in front of them, and then
//! the data path alone.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use dormouse_agent_datapath::Pinned;
use dormouse_rig::load::Load;
use dormouse_rig::server::Server;
use dormouse_rig::sockets::Opener;
use dormouse_rig::{Agent, Netns, OwnedHome, Site, Sockets, wait};
use dormouse_world::Host;
use serde_json::json;

use crate::rules::{add, kube_proxys, saved};

pub(crate) const KIND: &str = "ip6tables-nft";
pub(crate) const VIP: &str = "fd00:20::1";
/// A pod of another plugin.
pub(crate) const BACKEND: &str = "2001:db8:77::2";
/// Connections in each of the three states, at least.
const CONNECTIONS: u64 = 300;

/// Joins the pod of another plugin to the node by a link of its own.
pub(crate) fn wire(site: &Site, pod: &Netns) {
    let mac = ("02:00:00:00:77:01", "02:00:00:00:77:02");
    site.node().cable(("other0", mac.0), pod, ("eth0", mac.1));
    site.node()
        .ip("address add 2001:db8:77::1/64 dev other0 nodad");
    pod.ip(&format!("address add {BACKEND}/64 dev eth0 nodad"));
    pod.ip("route add default via 2001:db8:77::1");
    // Without a route to the cluster IP, no packet would come as far as kube-proxy's rules.
    site.node().ip(&format!(
        "route add default via {} dev {}",
        Site::OUTSIDE,
        Site::UPLINK
    ));
}

/// Writes the Service and its only endpoint, a pod of this node, into a folder of manifests.
pub(crate) fn publish(folder: &Path, node: &str) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "shop", "name": "s1"},
        "spec": {
            "type": "ClusterIP", "clusterIP": VIP, "clusterIPs": [VIP], "ipFamilies": ["IPv6"],
            "ports": [{"name": "p", "protocol": "TCP", "port": 80, "targetPort": 8080}],
        },
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv6",
        "metadata": {"namespace": "shop", "name": "s1-a", "labels": {"kubernetes.io/service-name": "s1"}},
        "ports": [{"name": "p", "protocol": "TCP", "port": 8080}],
        "endpoints": [{"addresses": [BACKEND], "nodeName": node, "conditions": {"ready": true}}],
    });
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("s1.json"), service.to_string()).unwrap();
    fs::write(folder.join("s1-a.json"), slice.to_string()).unwrap();
}

/// Sockets of a process on the node, in its cgroup.
fn on_the_node(site: &Site, home: &OwnedHome) -> Sockets {
    let host = Host {
        name: site.node().name().to_owned(),
        address: Site::NODE,
        prefix: None,
        netns: site.node().path().to_owned(),
        cgroup: home.cgroup.clone(),
        bpffs: home.bpffs.clone(),
        folder: home.folder.clone(),
    };
    Sockets::of(&Opener::start(&host), site.node().path())
}

/// Starts an agent that serves only Services, beside another plugin.
pub(crate) fn start(site: &Site, home: &OwnedHome, manifests: &Path) -> Agent {
    let mut command = home.command(&["run", "--runtime", "none", "--uplink", Site::UPLINK]);
    command
        .args(["--prefix", "none", "--address", &Site::NODE.to_string()])
        .args(["--service-range", "fd00:20::/112", "--manifests"])
        .arg(manifests)
        .args(["--metrics", "[::1]:10249", "--health", "[::1]:0"]);
    site.node()
        .enter(|| Agent::serving(&mut command, &home.socket()))
}

pub(crate) fn in_force(home: &OwnedHome) {
    wait("the Service to be in force", || {
        let pinned = Pinned::open(&home.bpffs);
        pinned.is_ok_and(|pinned| pinned.followed().next().is_some())
    });
}

#[test]
fn no_connection_fails_while_kube_proxys_rules_are_replaced() {
    let site = Site::new();
    let pod = site.pod("other");
    wire(&site, &pod);
    let home = OwnedHome::new(site.node().name());
    let manifests = home.folder.join("manifests");
    publish(&manifests, site.node().name());
    assert!(site.node().enter(|| add(KIND, &kube_proxys(VIP, BACKEND))));

    let _server = Server::light(&Sockets::bare(pod.path()), 8_080);
    let to = SocketAddr::new(VIP.parse().unwrap(), 80);
    let load = Load::connections("a change of proxies", &on_the_node(&site, &home), to);
    load.go_on(CONNECTIONS);

    let _agent = start(&site, &home, &manifests);
    in_force(&home);
    load.go_on(CONNECTIONS);

    let mut command = home.command(&["uninstall", "--kube-proxy-leftovers", "--force"]);
    let output = site.node().enter(|| command.output()).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let left = site.node().enter(|| saved(KIND)).unwrap();
    assert!(!left.contains("KUBE-"), "{left}");
    load.go_on(CONNECTIONS);
    let outcome = load.end();
    assert_eq!(outcome.failed, 0, "{outcome}");
}
