//! Pods that fill the node's neighbour tables, one that forges neighbours and one that scans the link: the node's own neighbour
//! discovery works meanwhile.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use dormouse_rig::frame::{ACK, ICMPV6, Mac, arp, behind, ipv6, seal, tcp};
use dormouse_rig::{Netns, Tap, wait};

use super::node::{Node, Pod};
use super::{DOWNLINK, NODE, UPLINK, on_link};

/// The first bridge of a node.
const BRIDGE: &str = "dormouse0";
/// Forged senders until the agent is killed, and as many after that: more than a neighbour table holds by default (1,024).
const SENDERS: u32 = 5_000;
/// Neighbours that the node has not spoken to.
const NEIGHBORS: u16 = 100;
/// Longer than a neighbour is solicited: three times, a second apart (RFC 4861 10).
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Addresses of the link that a pod scans, of each family; those of IPv4 are of this range.
const SCANNED: u32 = 10_000;
const SCANNED4: &str = "100.64.0.0/16";
/// Absent pods to which each of several sockets sends.
const SCANNED_BY_EACH: u32 = 1_000;
/// The link's prefix, `2001:db8:d0::/64`.
const POD_RANGE: u128 = 0x2001_0db8_00d0 << 80;
const NODE4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const GATEWAY_MAC: Mac = [2, 0xd0, 0, 0, 0, 1];
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const DESTINATION_OPTIONS: u8 = 60;

/// The frames of one forged sender, each of which creates a neighbour entry on a host that takes it.
fn forged(sender: u32) -> Vec<Vec<u8>> {
    let [_, b, c, d] = sender.to_be_bytes();
    let mac = [2, 0xee, 0, b, c, d];
    let address4 = Ipv4Addr::new(203, b, c, d);
    let asks4 = arp(1, [0xff; 6], (mac, address4), ([0; 6], NODE4));
    let replies4 = arp(2, GATEWAY_MAC, (mac, address4), (GATEWAY_MAC, NODE4));
    let sources = [0xfe80 << 112, POD_RANGE]
        .map(|prefix: u128| Ipv6Addr::from_bits(prefix | 0xee << 32 | u128::from(sender)));
    let option = [&[1, 1][..], &mac].concat();
    let nothing = [0; 4];
    let message = |source, to, kind: u8, body: &[u8]| {
        let body = [&[kind, 0, 0, 0], &nothing[..], body].concat();
        seal(
            ipv6((mac, GATEWAY_MAC), (ICMPV6, 255), (source, to), &body),
            2,
        )
    };
    let mut frames = vec![asks4, replies4];
    for source in sources {
        let solicits = [&GATEWAY.octets()[..], &option].concat();
        let solicits = message(source, GATEWAY, 135, &solicits);
        let header = [0, 0, 1, 4, 0, 0, 0, 0];
        frames.extend([
            behind(DESTINATION_OPTIONS, &header, &solicits),
            solicits,
            message(source, NODE, 135, &[&NODE.octets()[..], &option].concat()),
            message(source, ALL_ROUTERS, 133, &option),
            // Its answer needs a neighbour.
            message(source, GATEWAY, 128, &[]),
        ]);
    }
    frames
}

/// Does something again and again, with a number each time, until it is dropped.
struct Flood {
    senders: Arc<AtomicU32>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn start(send: impl Fn(u32) + Send + 'static) -> Self {
        let (senders, ends) = (
            Arc::new(AtomicU32::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (counter, end) = (Arc::clone(&senders), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                send(counter.fetch_add(1, Ordering::Relaxed));
            }
        });
        Self {
            senders,
            ends,
            thread: Some(thread),
        }
    }

    /// Sends forged frames.
    fn forging(pod: &Pod) -> Self {
        let tap = Tap::on(pod.netns.path(), "eth0");
        Self::start(move |sender| {
            for frame in forged(sender + 1) {
                tap.send(&frame);
            }
        })
    }

    /// Sends datagrams to addresses of the link that no host has, as any process in a pod can.
    fn scanning(pod: &Pod) -> Self {
        let sockets = pod
            .netns
            .inside(|| io::Result::Ok([UdpSocket::bind("[::]:0")?, UdpSocket::bind("0.0.0.0:0")?]));
        Self::start(move |number| {
            let [_, _, c, d] = (number % SCANNED).to_be_bytes();
            let v6 = Ipv6Addr::from_bits(POD_RANGE | 0xee << 32 | u128::from(number % SCANNED));
            let targets = [
                SocketAddr::from((v6, 9)),
                (Ipv4Addr::new(100, 64, c, d), 9).into(),
            ];
            for (socket, target) in sockets.iter().zip(targets) {
                // The host may report an address that has not answered.
                let _ = socket.send_to(b"scan", target);
            }
        })
    }

    /// Sends segments of connections that do not exist to addresses of the pod range that no pod has, as a process with a raw socket
    /// can. What waits for a neighbour fills the socket's buffer, so one socket alone occupies 256 entries; each has an own range.
    fn scanning_pods(pod: &Pod, range: u16) -> Self {
        let (tap, source) = (Tap::on(pod.netns.path(), "eth0"), pod.address);
        let first = POD_RANGE | 0xee << 32 | u128::from(range) << 16;
        Self::start(move |number| {
            let absent = Ipv6Addr::from_bits(first | u128::from(number & 0xffff));
            let mut frame = tcp((source, 40_000), (absent, 9), ACK);
            frame[..6].copy_from_slice(&GATEWAY_MAC);
            tap.send(&frame);
        })
    }

    /// Waits until this was done so often again.
    fn go_on(&self, times: u32) {
        let until = self.senders.load(Ordering::Relaxed) + times;
        wait("the flood", || {
            self.senders.load(Ordering::Relaxed) >= until
        });
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Neighbours of the pods' bridge that the node has learned.
fn learned(node: &Netns) -> usize {
    let entries = |family| node.ip(&format!("{family} neighbour show dev {BRIDGE} nud all"));
    let is_learned = |line: &&str| !line.contains("PERMANENT") && !line.contains("NOARP");
    let count = |text: &str| text.lines().filter(is_learned).count();
    count(&entries("-4")) + count(&entries("-6"))
}

/// Addresses of the router, which the node has not spoken to.
fn neighbors() -> Vec<SocketAddr> {
    let addresses = (0..NEIGHBORS).flat_map(|number| {
        let host = u8::try_from(number).unwrap() + 101;
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 1, number);
        [
            SocketAddr::from((v6, 9)),
            (Ipv4Addr::new(198, 51, 100, host), 9).into(),
        ]
    });
    addresses.collect()
}

/// Sends a datagram to each neighbour; returns those that did not get it.
fn lost(node: &Netns, router: &Netns) -> BTreeSet<SocketAddr> {
    let mut missing = BTreeSet::new();
    let listening: Vec<_> = neighbors()
        .into_iter()
        .map(|neighbor| (neighbor, router.inside(|| UdpSocket::bind(neighbor))))
        .collect();
    let sent: Vec<io::Result<usize>> = node.enter(|| {
        let send = |(neighbor, _): &(SocketAddr, UdpSocket)| {
            let any = if neighbor.is_ipv4() {
                "0.0.0.0:0"
            } else {
                "[::]:0"
            };
            UdpSocket::bind(any)?.send_to(b"hello", neighbor)
        };
        listening.iter().map(send).collect()
    });
    for ((neighbor, socket), sent) in listening.iter().zip(sent) {
        // Those that are late are lost together.
        let limit = if missing.is_empty() {
            ANSWER_LIMIT
        } else {
            Duration::from_millis(1)
        };
        socket.set_read_timeout(Some(limit)).unwrap();
        if sent.is_err() || socket.recv(&mut [0; 8]).is_err() {
            missing.insert(*neighbor);
        }
    }
    missing
}

/// A node and its router, which has all the neighbours' addresses.
fn with_neighbors() -> (Netns, Node) {
    let (router, node) = on_link("on-link");
    node.netns
        .ip(&format!("address add {NODE4}/24 dev {UPLINK}"));
    for neighbor in neighbors() {
        let (address, rest) = match neighbor {
            SocketAddr::V4(v4) => (v4.ip().to_string(), format!("/24 dev {DOWNLINK}")),
            SocketAddr::V6(v6) => (v6.ip().to_string(), format!("/64 dev {DOWNLINK} nodad")),
        };
        router.ip(&format!("address add {address}{rest}"));
    }
    (router, node)
}

fn assert_none_lost(node: &Netns, router: &Netns) {
    let lost = lost(node, router);
    let count = lost.len();
    assert!(lost.is_empty(), "{count} of {}: {lost:?}", 2 * NEIGHBORS);
}

/// What a node has of its pods: entries of the bridge's neighbours that it did not learn, routes, and links.
fn stand(node: &Netns) -> [usize; 4] {
    let lines = |arguments: &str| node.ip(arguments).lines().count();
    [
        lines("-6 neighbour show nud permanent"),
        lines("-4 neighbour show nud permanent"),
        lines("-6 route show table all type unicast"),
        lines("-o link show type veth"),
    ]
}

/// Under a flood: what the node has is the same before its agent is killed, without one, and with the next one.
fn kill_in(flood: &Flood, node: &mut Node, times: u32) {
    flood.go_on(times);
    let before = stand(&node.netns);
    node.kill();
    flood.go_on(times);
    assert_eq!(stand(&node.netns), before, "without an agent");
    node.start();
    flood.go_on(times);
    assert_eq!(stand(&node.netns), before, "with the next agent");
}

#[test]
fn a_node_learns_no_neighbour_that_a_pod_forges() {
    let (router, mut node) = with_neighbors();
    node.start();
    let pod = node.add("forger");
    let flood = Flood::forging(&pod);
    flood.go_on(SENDERS);
    kill_in(&flood, &mut node, SENDERS);
    node.kill();
    flood.go_on(SENDERS);
    // The programs on the pod's link outlive the agent.
    assert_none_lost(&node.netns, &router);
    let learned = learned(&node.netns);
    drop(flood);
    assert!(learned <= 1, "{learned} neighbours");
}

#[test]
fn a_node_reaches_new_neighbours_while_a_pod_scans_its_link() {
    let (router, node) = with_neighbors();
    let mut node = node.also(&["--prefix4", "10.64.0.0/24"]);
    node.netns.ip(&format!("route add {SCANNED4} dev {UPLINK}"));
    node.start();
    let pod = node.add("scanner");
    let flood = Flood::scanning(&pod);
    kill_in(&flood, &mut node, SCANNED);
    assert_none_lost(&node.netns, &router);
    drop(flood);
    // What the pod may look for, it reaches.
    // Another port: a process that is being started may still have the sockets of before.
    let neighbor = SocketAddr::new(neighbors()[0].ip(), 10);
    let listening = router.inside(|| UdpSocket::bind(neighbor));
    wait("a datagram of the pod", || {
        pod.netns.send(pod.address, neighbor).unwrap();
        listening
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        listening.recv(&mut [0; 8]).is_ok()
    });
}

#[test]
fn a_node_reaches_new_neighbours_while_a_pod_sends_segments_to_absent_pods() {
    let (router, node) = with_neighbors();
    let mut node = node.also(&["--pod-range", "2001:db8:d0::/64"]);
    node.start();
    let pod = node.add("scanner");
    let floods = [0, 1, 2, 3, 4, 5, 6, 7].map(|range| Flood::scanning_pods(&pod, range));
    for flood in &floods {
        flood.go_on(SCANNED_BY_EACH);
    }
    assert_none_lost(&node.netns, &router);
    drop(floods);
}
