//! A Service whose only backend is on another node: as the data path has it, and as rules of nftables.

use std::io::Write as _;
use std::net::Ipv6Addr;
use std::process::{Command, Stdio};

use dormouse_agent_datapath::{ClusterFacts, Datapath};
use dormouse_agent_services::{
    Node, NodeAddresses, NodePortAddresses, Prefix, Services, Strictness,
};
use dormouse_agent_services_samples::recorded;
use serde_json::json;

use crate::place::NODE;

/// The address and port at which hosts outside reach it, and those of its backend.
pub(crate) const ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x30, 0, 0, 0, 0, 0, 1);
pub(crate) const PORT: u16 = 53;
pub(crate) const BACKEND: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 2, 0, 5);
const BACKEND_PORT: u16 = 5_353;

/// The Services of a data path.
pub(crate) fn serve(datapath: &Datapath) {
    let range = |text| Prefix::parse(text).unwrap();
    let cluster = Node {
        name: "n1".to_owned(),
        addresses: NodeAddresses {
            primary: vec![NODE.into()],
            local: vec![NODE.into()],
        },
        pod_ranges: vec![range("2001:db8:d0::/48")],
        service_ranges: vec![range("fd00:20::/112")],
        node_port_addresses: NodePortAddresses::Primary,
        masquerade_all: false,
    };
    let facts = ClusterFacts::new(&cluster);
    datapath.services.set_cluster(&facts).unwrap();
    let mut services = Services::new(cluster, Strictness::KubeProxy);
    for object in objects() {
        recorded::apply_object(&mut services, true, &object);
    }
    let changes = services.sync();
    datapath.services.serve(&services, &changes).unwrap();
}

fn objects() -> [serde_json::Value; 2] {
    let service = json!({
        "kind": "Service",
        "metadata": {"namespace": "default", "name": "away"},
        "spec": {
            "type": "ClusterIP", "clusterIP": "fd00:20::5", "clusterIPs": ["fd00:20::5"], "ipFamilies": ["IPv6"],
            "externalIPs": [ADDRESS],
            "ports": [{"name": "dns", "protocol": "UDP", "port": PORT, "targetPort": BACKEND_PORT}],
        },
    });
    let slice = json!({
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "default", "name": "away-1", "labels": {"kubernetes.io/service-name": "away"},
        },
        "addressType": "IPv6",
        "endpoints": [{"addresses": [BACKEND], "conditions": {"ready": true}}],
        "ports": [{"name": "dns", "protocol": "UDP", "port": BACKEND_PORT}],
    });
    [service, slice]
}

/// The same by nftables: one map for the DNAT, and masquerading, as kube-proxy's rules have them, without its filters.
/// `link` is that by which requests arrive.
pub(crate) fn rules(link: &str) -> String {
    format!(
        "table ip6 away {{
  map services {{ type ipv6_addr . inet_service : ipv6_addr . inet_service; elements = {{ {ADDRESS} . {PORT} : {BACKEND} . {BACKEND_PORT} }}; }}
  chain arriving {{ type nat hook prerouting priority dstnat; policy accept; iifname {link} meta l4proto udp dnat ip6 to ip6 daddr . udp dport map @services; }}
  chain leaving {{ type nat hook postrouting priority srcnat; policy accept; iifname {link} ip6 daddr {BACKEND} masquerade; }}
}}"
    )
}

/// Puts rules of nftables in force.
pub(crate) fn nft(rules: &str) {
    let mut nft = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = nft.stdin.take().unwrap();
    input.write_all(rules.as_bytes()).unwrap();
    drop(input);
    assert!(nft.wait().unwrap().success());
}
