//! The pods of a side, and their wiring without an agent: the same bridge, ports and routes, without programs.

use std::net::{Ipv6Addr, SocketAddrV6};

use anyhow::{Context, Result};
use dormouse_world::Host;

use super::commands::{ip, run, set};

/// Port of the servers of short connections.
pub(super) const ANSWER_PORT: u16 = 8080;
/// Port of iperf3.
pub(super) const STREAM_PORT: u16 = 5201;
/// The gateway of every pod, as Dormouse has it.
const GATEWAY: &str = "fe80::1";
const GATEWAY_MAC: &str = "02:d0:00:00:00:01";
/// Number of the first pod on its node; smaller ones are reserved for the node.
const FIRST: u16 = 0x10;

/// A pod.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Pod {
    /// Its node, but with the pod's network namespace.
    pub(in crate::bench) host: Host,
    /// Its address.
    pub(in crate::bench) address: Ipv6Addr,
}

impl Pod {
    /// Its socket address for `port`.
    pub(in crate::bench) fn at(&self, port: u16) -> SocketAddrV6 {
        SocketAddrV6::new(self.address, port, 0, 0)
    }
}

/// The pods of a side.
#[derive(Clone, Debug)]
pub(super) struct Pods {
    /// The client of all connections.
    pub(super) client: Pod,
    /// A server on the client's node.
    pub(super) neighbor: Pod,
    /// The servers on the other node.
    pub(super) servers: [Pod; 2],
}

impl Pods {
    /// All pods with servers.
    pub(super) fn listening(&self) -> impl Iterator<Item = &Pod> {
        self.servers.iter().chain([&self.neighbor])
    }

    /// Addresses of the servers on the other node.
    pub(super) fn answering(&self) -> Vec<SocketAddrV6> {
        self.servers.iter().map(|pod| pod.at(ANSWER_PORT)).collect()
    }
}

/// Creates the pods' namespaces on two nodes; `wire` wires each pod and returns its address.
pub(super) fn make(
    nodes: [&Host; 2],
    mut wire: impl FnMut(&Host, &Host) -> Result<Ipv6Addr>,
) -> Result<Pods> {
    let mut pod = |node: &Host, name: &str| make_one(node, name, &mut wire);
    let [first, second] = nodes;
    Ok(Pods {
        client: pod(first, "client")?,
        neighbor: pod(first, "neighbor")?,
        servers: [pod(second, "server-1")?, pod(second, "server-2")?],
    })
}

/// Creates a pod's namespace on a node, and wires it.
pub(in crate::bench) fn make_one(
    node: &Host,
    name: &str,
    wire: impl FnOnce(&Host, &Host) -> Result<Ipv6Addr>,
) -> Result<Pod> {
    let host = inside(node, name);
    ip(None, &[format!("netns add {}", host.name)])?;
    set(&host.netns, "ipv6/conf/all/disable_ipv6", "0")?;
    set(&host.netns, "ipv6/conf/default/disable_ipv6", "0")?;
    // Otherwise a connection begins with the congestion state that the one before it to the same pod has left.
    set(&host.netns, "ipv4/tcp_no_metrics_save", "1")?;
    let address = wire(node, &host).with_context(|| format!("failed to wire {}", host.name))?;
    Ok(Pod { host, address })
}

/// A host with the node's cgroup and folders but its own namespace, which the world removes by its name.
fn inside(node: &Host, name: &str) -> Host {
    let name = format!("{}-{name}", node.name);
    Host {
        netns: node.netns.with_file_name(&name),
        name,
        ..node.clone()
    }
}

/// The wiring of two nodes without an agent.
#[derive(Default)]
pub(super) struct Plain {
    pods: u16,
}

impl Plain {
    /// Creates the bridges, and the routes to the other node's pods.
    pub(super) fn prepare(nodes: [&Host; 2]) -> Result<Self> {
        for (node, other) in [(nodes[0], nodes[1]), (nodes[1], nodes[0])] {
            set(&node.netns, "ipv6/conf/all/forwarding", "1")?;
            ip(Some(&node.netns), &node_lines(prefix(node)?, other)?)?;
        }
        Ok(Self::default())
    }

    /// Wires a pod and returns its address.
    pub(super) fn wire(&mut self, node: &Host, pod: &Host) -> Result<Ipv6Addr> {
        let number = FIRST + self.pods;
        self.pods += 1;
        let address = Ipv6Addr::from_bits(prefix(node)?.to_bits() | u128::from(number));
        ip(Some(&node.netns), &port_lines(&pod.name, number, address))?;
        let entry = format!("fdb replace {} dev pod-{number} master static", mac(number));
        run(Some(&node.netns), &["bridge", "-batch", "-"], &entry)?;
        set(&pod.netns, "ipv6/conf/eth0/accept_redirects", "0")?;
        ip(Some(&pod.netns), &pod_lines(number, address))?;
        Ok(address)
    }
}

fn prefix(node: &Host) -> Result<Ipv6Addr> {
    node.prefix
        .with_context(|| format!("{} has no prefix", node.name))
}

fn mac(number: u16) -> String {
    let [high, low] = number.to_be_bytes();
    format!("02:d0:00:01:{high:02x}:{low:02x}")
}

fn node_lines(prefix: Ipv6Addr, other: &Host) -> Result<Vec<String>> {
    let there = self::prefix(other)?;
    Ok(vec![
        format!(
            "link add pods0 address {GATEWAY_MAC} type bridge mcast_snooping 0 stp_state 0 forward_delay 0"
        ),
        "link set pods0 addrgenmode none".to_owned(),
        "link set pods0 up".to_owned(),
        format!("address add {GATEWAY}/64 dev pods0 scope link nodad"),
        format!("route add {prefix}/96 dev pods0"),
        format!("route add {there}/96 via {} dev eth0", other.address),
    ])
}

fn port_lines(pod: &str, number: u16, address: Ipv6Addr) -> Vec<String> {
    let (port, mac) = (format!("pod-{number}"), mac(number));
    vec![
        format!("link add {port} type veth peer name eth0 netns {pod} address {mac}"),
        format!("link set {port} addrgenmode none master pods0"),
        format!(
            "link set {port} type bridge_slave learning off flood off mcast_flood off bcast_flood off isolated on"
        ),
        format!("link set {port} up"),
        format!("neigh replace {address} lladdr {mac} dev pods0 nud permanent"),
    ]
}

fn pod_lines(number: u16, address: Ipv6Addr) -> Vec<String> {
    vec![
        "link set lo up".to_owned(),
        "link set eth0 addrgenmode none".to_owned(),
        "link set eth0 up".to_owned(),
        format!("address add fe80::{number:x}/64 dev eth0 nodad"),
        format!("address add {address}/128 dev eth0 nodad"),
        format!("neigh replace {GATEWAY} lladdr {GATEWAY_MAC} dev eth0 nud permanent"),
        format!("route add default via {GATEWAY} dev eth0"),
    ]
}

#[cfg(test)]
pub(super) fn example() -> Pod {
    let nowhere = std::path::PathBuf::new;
    let host = Host {
        name: "bnet-node-1-client".to_owned(),
        address: Ipv6Addr::LOCALHOST,
        prefix: None,
        netns: nowhere(),
        cgroup: nowhere(),
        bpffs: nowhere(),
        folder: nowhere(),
    };
    Pod {
        host,
        address: Ipv6Addr::LOCALHOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_two_nodes_never_share_a_link_layer_address() {
        assert_eq!(mac(FIRST), "02:d0:00:01:00:10");
        assert_ne!(mac(FIRST), mac(FIRST + 1));
    }

    #[test]
    fn a_pods_bridge_port_neither_learns_nor_floods() {
        let lines = port_lines("b-node-1-client", 16, Ipv6Addr::LOCALHOST);
        assert_eq!(
            lines[0],
            "link add pod-16 type veth peer name eth0 netns b-node-1-client address 02:d0:00:01:00:10"
        );
        assert!(lines[2].contains("learning off flood off"));
        assert!(lines[2].ends_with("isolated on"));
    }
}
