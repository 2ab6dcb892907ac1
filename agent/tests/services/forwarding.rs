//! Packets between pods: past the host's hooks or through them, as the node was told, with the host's care for limits and
//! neighbours.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, sendto, socket};
use serde_json::{Value, json};

use crate::acts::Acts;
use crate::client::{tcp, transfer, udp};
use crate::node::attach;
use crate::place::Place;
use crate::server::{Server, servers};
use crate::stage::{POD_PORT, Stage, wait};
use crate::wiring::ip;

/// Many packets, of every size up to the largest that the kernel joins.
const STREAM_LEN: usize = 4 << 20;
/// What the limited pod may receive: more than it is asked to.
const LIMIT_BITS: u64 = 1_000_000_000;

/// The ports of segments that a pod makes itself.
const TAGGED: u16 = 55_555;
const PLAIN: u16 = 55_556;

pub(crate) struct Forwarding {
    pub(crate) stage: Stage,
    /// A pod of the first node that may not receive as much as others.
    limited: SocketAddr,
    _servers: Vec<Server>,
}

impl Forwarding {
    pub(crate) fn set() -> Self {
        let stage = Stage::set();
        let mut servers = servers(&stage);
        let node = &stage.nodes[0];
        let namespace = format!("{}-limited", node.host.name);
        ip(&format!("netns add {namespace}"));
        let netns = PathBuf::from("/run/netns").join(&namespace);
        ip(&format!("-n {namespace} link set lo up"));
        let limit = json!({"bandwidth": {"ingressRate": LIMIT_BITS, "ingressBurst": LIMIT_BITS}});
        let address = attach(node, "limited", &netns, &limit);
        let place = Place::outside(&netns);
        servers.push(Server::start(&place, "limited", POD_PORT));
        Self {
            limited: (address, POD_PORT).into(),
            stage,
            _servers: servers,
        }
    }

    pub(crate) fn play(&mut self, acts: &mut Acts) {
        self.count();
        acts.play("the host's hooks see no packet between pods", || {
            assert_eq!(self.seen_of_an_exchange(), [0, 0]);
        });
        acts.play("a neighbour that packets go to is asked after", || {
            let before = self.seen();
            self.age();
            wait("the neighbour to be known to be there", || {
                tcp(&self.stage.pod(0, 0).bare, self.far()).unwrap();
                self.neighbor().contains("REACHABLE")
            });
            assert_eq!(self.seen(), before, "by packets that the host does not see");
        });
        acts.play("what a pod may receive is limited all the same", || {
            self.limited();
        });
        acts.play(
            "a pod's frames with a VLAN tag leave the node by no way",
            || {
                self.tagged();
            },
        );
        acts.play("a queue that comes later is noticed", || {
            self.queue_later();
        });
        self.stage.crash(0);
        acts.play("it stays so without an agent", || {
            assert_eq!(self.seen_of_an_exchange(), [0, 0]);
        });
        self.stage.crash(1);
        for node in [0, 1] {
            self.stage.revive_with(node, &["--forwarding", "kernel"]);
        }
        self.stage.in_force();
        acts.play("the host's hooks see them where they are asked to", || {
            let seen = self.seen_of_an_exchange();
            assert!(seen.iter().all(|packets| *packets > 0), "{seen:?}");
        });
        self.stage.crash(0);
        self.stage.revive(0);
        self.stage.in_force();
        acts.play("a pod with a limit is known again by another agent", || {
            assert_eq!(self.seen_of_an_exchange()[0], 0);
            self.limited();
        });
    }

    /// Counts what is forwarded between pods, on both nodes, and drops what answers nothing that the host has seen.
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

    /// Packets that the nodes' hooks have seen.
    fn seen(&self) -> [u64; 2] {
        [0, 1].map(|node| self.host(node).counted("inet see between"))
    }

    /// What they see of streams both ways and datagrams between pods, on one node and across.
    fn seen_of_an_exchange(&self) -> [u64; 2] {
        let near = (self.stage.pod(0, 1).end.address, POD_PORT).into();
        let pod = &self.stage.pod(0, 0).bare;
        // The first packet to a neighbour that is not known yet is the host's.
        tcp(pod, self.far()).unwrap();
        let before = self.seen();
        for target in [near, self.far()] {
            transfer(pod, target, STREAM_LEN).unwrap();
            udp(pod, target).unwrap();
        }
        let now = self.seen();
        [now[0] - before[0], now[1] - before[1]]
    }

    fn host(&self, node: usize) -> Place {
        Place::outside(&self.stage.nodes[node].host.netns)
    }

    fn far(&self) -> SocketAddr {
        (self.stage.pod(1, 0).end.address, POD_PORT).into()
    }

    /// Makes the first node doubt that the far pod is where it was.
    fn age(&self) {
        let change = format!("-6 neighbour change {} dev eth0 nud stale", self.far().ip());
        self.host(0).run("ip", &change);
        assert!(!self.neighbor().contains("REACHABLE"));
    }

    fn neighbor(&self) -> String {
        let show = format!("-6 neighbour show {} dev eth0", self.far().ip());
        self.host(0).run("ip", &show)
    }

    /// The pod with a limit hears everything by the queue that keeps it.
    fn limited(&self) {
        let link = self.limited_link();
        for pod in [self.stage.pod(0, 0), self.stage.pod(1, 0)] {
            let before = self.passed(&link);
            transfer(&pod.bare, self.limited, STREAM_LEN).unwrap();
            let queued = self.passed(&link) - before;
            assert!(queued >= STREAM_LEN as u64, "{queued} bytes in the queue");
        }
    }

    /// Somebody else gives a pod's link a queue, as a plugin of a chain may.
    fn queue_later(&self) {
        let host = self.host(0);
        let pod = self.stage.pod(0, 1);
        let routes = host.run("bridge", "-j fdb show");
        let routes: Value = serde_json::from_str(&routes).unwrap();
        let own = own_mac(&pod.bare);
        let mut ports = routes.as_array().unwrap().iter();
        let port = ports.find(|entry| entry["mac"] == own).unwrap();
        let link = port["ifname"].as_str().unwrap();
        let queue = "root tbf rate 1gbit burst 1mb latency 50ms";
        host.run("tc", &format!("qdisc replace dev {link} {queue}"));
        // Another link's change is a reason to look at all.
        host.run("ip", "link add other0 type veth peer name other1");
        host.run("ip", "link set other0 mtu 1400");
        let before = self.passed(link);
        wait("packets to wait in the queue", || {
            transfer(
                &self.stage.pod(0, 0).bare,
                (pod.end.address, POD_PORT).into(),
                STREAM_LEN,
            )
            .unwrap();
            self.passed(link) - before > STREAM_LEN as u64
        });
        host.run("tc", &format!("qdisc delete dev {link} root"));
        host.run("ip", "link set other0 mtu 1300");
        wait("packets to pass by again", || {
            self.seen_of_an_exchange() == [0, 0]
        });
    }

    /// A pod puts a tag into its frames, which a switch may take for another network's.
    fn tagged(&self) {
        let (pod, target) = (self.stage.pod(0, 0), self.far());
        let switch = self.stage.switch();
        let rules = format!(
            "add table netdev see; \
             add counter netdev see tagged; add counter netdev see plain; \
             add chain netdev see come {{ type filter hook ingress device node-1 priority 0; }}; \
             add rule netdev see come tcp sport {TAGGED} counter name tagged; \
             add rule netdev see come tcp sport {PLAIN} counter name plain"
        );
        switch.run("nft", &rules);
        let router = pod.bare.run("ip", "-6 neighbour show fe80::1 dev eth0");
        let router = mac(router
            .split(' ')
            .skip_while(|word| *word != "lladdr")
            .nth(1));
        let ends = [router, mac(Some(&own_mac(&pod.bare)))].concat();
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
        send(&pod.bare, &frame(&[0x81, 0, 0, 5], TAGGED));
        wait("a frame without a tag to leave", || {
            send(&pod.bare, &frame(&[], PLAIN));
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

    /// The host's end of the link of the pod with a limit, as long as there is no other.
    fn limited_link(&self) -> String {
        self.queues()[0]["dev"].as_str().unwrap().to_owned()
    }

    /// The queues of the first node's links in which packets wait.
    fn queues(&self) -> Vec<Value> {
        let told = self.host(0).run("tc", "-s -j qdisc show");
        let mut queues: Vec<Value> = serde_json::from_str(&told).unwrap();
        queues.retain(|queue| queue["kind"] == "tbf");
        queues
    }
}

/// The link-layer address of a pod, as text.
fn own_mac(place: &Place) -> String {
    let told = place.run("ip", "-j link show dev eth0");
    let told: Value = serde_json::from_str(&told).unwrap();
    told[0]["address"].as_str().unwrap().to_owned()
}

fn mac(text: Option<&str>) -> Vec<u8> {
    let bytes = text.unwrap().split(':');
    bytes
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

/// Sends a frame as it is.
fn send(place: &Place, frame: &[u8]) {
    place.inside(|| {
        let link = getifaddrs().unwrap();
        let mut link = link.filter(|entry| entry.interface_name == "eth0");
        let link = link.find_map(|entry| entry.address?.as_link_addr().copied());
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None).unwrap();
        let sent = sendto(socket.as_raw_fd(), frame, &link.unwrap(), MsgFlags::empty());
        assert_eq!(sent.unwrap(), frame.len());
    });
}
