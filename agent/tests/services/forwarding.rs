//! Packets between pods: redirected past the host's hooks or forwarded through them, as the agent is configured; limits and
//! neighbour discovery apply either way.

use std::net::{IpAddr, SocketAddr};

use dormouse_rig::client::{tcp, transfer, udp};
use dormouse_rig::frame::mac;
use dormouse_rig::server::Server;
use dormouse_rig::shared::{Fixture, Shared};
use dormouse_rig::{Netns, Sockets, Tap, wait};
use serde_json::{Value, json};

use crate::cluster::{Cluster, POD_PORT};
use crate::node::attach;

/// A stream's length in bytes: many packets, of every size up to the largest that the kernel joins.
const STREAM_LEN: usize = 4 << 20;
/// What the limited pod may receive, in bits a second: more than it is sent.
const LIMIT_BITS: u64 = 1_000_000_000;

/// The ports of segments that a test makes itself.
const TAGGED: u16 = 55_555;
const PLAIN: u16 = 55_556;

/// A cluster whose nodes count what their own forwarding sees.
struct Forwarding {
    /// The address of a pod of the first node with a limit of what it may receive.
    limited: SocketAddr,
    limited_pod: Netns,
    _servers: Vec<Server>,
    cluster: Cluster,
}

static FORWARDING: Shared<Forwarding> = Shared::new();

impl Fixture for Forwarding {
    fn build(prefix: &str) -> Self {
        let cluster = Cluster::build(prefix);
        let mut servers = cluster.servers();
        let node = &cluster.nodes[0];
        let pod = Netns::named(&format!("{}-limited", node.host.name));
        pod.ip("link set lo up");
        let limit = json!({"bandwidth": {"ingressRate": LIMIT_BITS, "ingressBurst": LIMIT_BITS}});
        let address = attach(node, "limited", &pod, &limit);
        let sockets = Sockets::bare(pod.path());
        servers.push(Server::start(&sockets, "limited", POD_PORT));
        let it = Self {
            limited: (address, POD_PORT).into(),
            limited_pod: pod,
            _servers: servers,
            cluster,
        };
        it.count();
        it
    }

    fn report(&self) -> String {
        self.cluster.report()
    }
}

#[test]
fn the_hosts_hooks_see_no_packet_between_pods() {
    let it = FORWARDING.lease();
    assert_eq!(it.seen_of_an_exchange(), [0, 0]);
}

#[test]
fn a_stale_neighbour_is_solicited_although_the_host_sees_no_packet() {
    let it = FORWARDING.lease();
    tcp(&it.cluster.pod(0, 0).bare, it.far()).unwrap();
    let before = it.seen();
    it.age();
    wait("the neighbour to be reachable", || {
        tcp(&it.cluster.pod(0, 0).bare, it.far()).unwrap();
        it.neighbor().contains("REACHABLE")
    });
    assert_eq!(it.seen(), before, "by packets that the host does not see");
}

#[test]
fn what_a_pod_may_receive_is_limited() {
    FORWARDING.lease().check_limited();
}

#[test]
fn a_pods_frames_with_a_vlan_tag_do_not_leave_the_node() {
    FORWARDING.lease().check_tagged();
}

#[test]
fn a_queue_that_a_link_gets_later_is_noticed() {
    FORWARDING.lease().check_later_queue();
}

#[test]
fn without_an_agent_the_hosts_hooks_see_no_packet_either() {
    let mut it = FORWARDING.lease();
    it.cluster.crash(0);
    assert_eq!(it.seen_of_an_exchange(), [0, 0]);
    it.cluster.revive(0);
    it.cluster.in_force();
}

#[test]
fn the_hosts_hooks_see_packets_where_the_kernel_forwards() {
    let mut it = FORWARDING.lease();
    it.start_all(&["--forwarding", "kernel"]);
    let seen = it.seen_of_an_exchange();
    assert!(seen.iter().all(|packets| *packets > 0), "{seen:?}");
    it.start_all(&[]);
    assert_eq!(it.seen_of_an_exchange()[0], 0);
    it.check_limited();
}

#[test]
fn the_next_agent_knows_a_pod_with_a_limit() {
    let mut it = FORWARDING.lease();
    it.cluster.crash(0);
    it.cluster.revive(0);
    it.cluster.in_force();
    assert_eq!(it.seen_of_an_exchange()[0], 0);
    it.check_limited();
}

impl Forwarding {
    /// Replaces both agents.
    fn start_all(&mut self, more: &[&str]) {
        for node in [0, 1] {
            self.cluster.crash(node);
            self.cluster.revive_with(node, more);
        }
        self.cluster.in_force();
    }

    /// Counts what the nodes' own forwarding sees between pods, and drops replies to packets that it has not seen.
    fn count(&self) {
        for node in [0, 1] {
            let rules = "add table inet see; \
                 add counter inet see between; \
                 add chain inet see pass { type filter hook forward priority 0; }; \
                 add rule inet see pass ip6 saddr 2001:db8:d0::/64 ip6 daddr 2001:db8:d0::/64 meta l4proto {tcp,udp} counter name between; \
                 add rule inet see pass ct state invalid drop";
            self.host(node).run("nft", rules);
        }
    }

    /// Packets between pods that the nodes' hooks have seen.
    fn seen(&self) -> [u64; 2] {
        [0, 1].map(|node| self.host(node).counted("inet see between"))
    }

    /// How many packets they see of streams both ways and datagrams between pods, on one node and across.
    fn seen_of_an_exchange(&self) -> [u64; 2] {
        let near = (self.cluster.pod(0, 1).end.address, POD_PORT).into();
        let pod = &self.cluster.pod(0, 0).bare;
        // The first packet to an unknown neighbour is the host's to send.
        tcp(pod, self.far()).unwrap();
        let before = self.seen();
        for target in [near, self.far()] {
            transfer(pod, target, STREAM_LEN).unwrap();
            udp(pod, target).unwrap();
        }
        let now = self.seen();
        [now[0] - before[0], now[1] - before[1]]
    }

    /// The node's namespace, by sockets of no cgroup.
    fn host(&self, node: usize) -> Sockets {
        Sockets::bare(&self.cluster.nodes[node].host.netns)
    }

    fn far(&self) -> SocketAddr {
        (self.cluster.pod(1, 0).end.address, POD_PORT).into()
    }

    /// Makes the first node's neighbour entry of the far pod stale.
    fn age(&self) {
        let change = format!("-6 neighbour change {} dev eth0 nud stale", self.far().ip());
        self.host(0).run("ip", &change);
        assert!(!self.neighbor().contains("REACHABLE"));
    }

    fn neighbor(&self) -> String {
        let show = format!("-6 neighbour show {} dev eth0", self.far().ip());
        self.host(0).run("ip", &show)
    }

    /// All packets to the pod with a limit pass the queue that enforces it.
    fn check_limited(&self) {
        let link = self.limited_link();
        for pod in [self.cluster.pod(0, 0), self.cluster.pod(1, 0)] {
            let before = self.passed(&link);
            transfer(&pod.bare, self.limited, STREAM_LEN).unwrap();
            let queued = self.passed(&link) - before;
            assert!(queued >= STREAM_LEN as u64, "{queued} bytes in the queue");
        }
    }

    /// Gives a pod's link a queue, as another plugin of a chain may, and takes it away again.
    fn check_later_queue(&self) {
        let host = self.host(0);
        let pod = self.cluster.pod(0, 1);
        let link = self.link_of(&pod.bare);
        let queue = "root tbf rate 1gbit burst 1mb latency 50ms";
        host.run("tc", &format!("qdisc replace dev {link} {queue}"));
        // The agent looks again when any link changes.
        host.run("ip", "link add other0 type veth peer name other1");
        host.run("ip", "link set other0 mtu 1400");
        let before = self.passed(&link);
        wait("packets to wait in the queue", || {
            transfer(
                &self.cluster.pod(0, 0).bare,
                (pod.end.address, POD_PORT).into(),
                STREAM_LEN,
            )
            .unwrap();
            self.passed(&link) - before > STREAM_LEN as u64
        });
        host.run("tc", &format!("qdisc delete dev {link} root"));
        host.run("ip", "link set other0 mtu 1300");
        wait("packets to pass by again", || {
            self.seen_of_an_exchange() == [0, 0]
        });
        host.run("ip", "link delete other0");
    }

    /// Sends frames with a VLAN tag, which a switch may take for another network's.
    fn check_tagged(&self) {
        let (pod, target) = (self.cluster.pod(0, 0), self.far());
        let switch = self.cluster.switch();
        let rules = format!(
            "add table netdev see; \
             add counter netdev see tagged; add counter netdev see plain; \
             add chain netdev see come {{ type filter hook ingress device node-1 priority 0; }}; \
             add rule netdev see come tcp sport {TAGGED} counter name tagged; \
             add rule netdev see come tcp sport {PLAIN} counter name plain"
        );
        switch.run("nft", &rules);
        // From here on the pod knows its router's link-layer address.
        tcp(&pod.bare, target).unwrap();
        let router = pod.bare.run("ip", "-6 neighbour show fe80::1 dev eth0");
        let router = router.split(' ').skip_while(|word| *word != "lladdr");
        let router = mac(router.clone().nth(1).unwrap());
        let ends = [router, mac(&own_mac(&pod.bare))].concat();
        let tap = Tap::on(pod.bare.netns(), "eth0");
        let frame = |tag: &[u8], port: u16| {
            let segment = [
                &port.to_be_bytes()[..],
                &target.port().to_be_bytes(),
                &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 255, 255, 0, 0, 0, 0],
            ];
            let addresses = [pod.end.address, target.ip()].map(|address| match address {
                IpAddr::V6(address) => address.octets(),
                IpAddr::V4(_) => panic!("pods have IPv6 addresses"),
            });
            let header = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64];
            let header = [&header[..], &addresses.concat()].concat();
            [&ends, tag, &header, &segment.concat()].concat()
        };
        tap.send(&frame(&[0x81, 0, 0, 5], TAGGED));
        wait("a frame without a tag to leave", || {
            tap.send(&frame(&[], PLAIN));
            switch.counted("netdev see plain") > 0
        });
        assert_eq!(switch.counted("netdev see tagged"), 0);
    }

    /// Bytes that went through the queue of a link.
    fn passed(&self, link: &str) -> u64 {
        let mut queues = self.queues().into_iter();
        let queue = queues.find(|queue| queue["dev"] == link);
        queue.unwrap()["bytes"].as_u64().unwrap()
    }

    /// The host's end of the link of the pod with a limit.
    fn limited_link(&self) -> String {
        self.link_of(&Sockets::bare(self.limited_pod.path()))
    }

    /// The host's end of a pod's link on the first node: the port of the bridge that has its link-layer address.
    fn link_of(&self, pod: &Sockets) -> String {
        let entries = self.host(0).run("bridge", "-j fdb show");
        let entries: Value = serde_json::from_str(&entries).unwrap();
        let own = own_mac(pod);
        let mut ports = entries.as_array().unwrap().iter();
        let port = ports.find(|entry| entry["mac"] == own).unwrap();
        port["ifname"].as_str().unwrap().to_owned()
    }

    /// The queues of the first node's links in which packets wait.
    fn queues(&self) -> Vec<Value> {
        let shown = self.host(0).run("tc", "-s -j qdisc show");
        let mut queues: Vec<Value> = serde_json::from_str(&shown).unwrap();
        queues.retain(|queue| queue["kind"] == "tbf");
        queues
    }
}

/// The link-layer address of a pod, as text.
fn own_mac(sockets: &Sockets) -> String {
    let shown = sockets.run("ip", "-j link show dev eth0");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    shown[0]["address"].as_str().unwrap().to_owned()
}
