//! Connections from outside that kube-proxy's rules have translated before the agent comes into force beside it.

use std::net::{IpAddr, SocketAddr};

use dormouse_rig::client::tcp;
use dormouse_rig::load::Load;
use dormouse_rig::server::Server;
use dormouse_rig::{OwnedHome, Site, Sockets};

use crate::change::{BACKEND, KIND, VIP, in_force, publish, start, wire};
use crate::kube_proxy::{KubeProxy, turn};
use crate::rules::{add, kube_proxys};

const OPEN: usize = 4;
/// Questions over the open connections in each state of the node, at least.
const QUESTIONS: u64 = 100;
/// The node's address towards the pod, which is that of the clients whom kube-proxy's rules masquerade.
const GATEWAY: &str = "2001:db8:77::1";

/// The client's address, as the server sees it on a new connection.
fn seen(outside: &Sockets, to: SocketAddr) -> IpAddr {
    tcp(outside, to).unwrap().seen
}

#[test]
fn connections_from_outside_go_on_when_the_agent_comes_into_force_beside_kube_proxy() {
    let site = Site::new();
    let pod = site.pod("other");
    wire(&site, &pod);
    site.node().set_sysctl("ipv6/conf/all/forwarding", "1");
    let route = format!("route add fd00:20::/112 via {}", Site::NODE);
    site.outside().ip(&route);
    let home = OwnedHome::new(site.node().name());
    let manifests = home.folder.join("manifests");
    publish(&manifests, site.node().name());
    assert!(site.node().enter(|| add(KIND, &kube_proxys(VIP, BACKEND))));
    let _turn = turn();
    let kube_proxy = KubeProxy::start(&home.folder);

    let _server = Server::start(&Sockets::bare(pod.path()), "other", 8_080);
    let to = SocketAddr::new(VIP.parse().unwrap(), 80);
    let outside = Sockets::bare(site.outside().path());
    assert_eq!(seen(&outside, to), GATEWAY.parse::<IpAddr>().unwrap());
    let open = Load::held("open connections", &outside, to, OPEN);
    open.go_on(QUESTIONS);

    let _agent = start(&site, &home, &manifests);
    in_force(&home);
    open.go_on(QUESTIONS);
    assert_eq!(seen(&outside, to), IpAddr::from(Site::OUTSIDE));
    drop(kube_proxy);
    open.go_on(QUESTIONS);
    assert_eq!(seen(&outside, to), IpAddr::from(Site::OUTSIDE));
    let outcome = open.end();
    assert_eq!(outcome.failed, 0, "{outcome}");
}
