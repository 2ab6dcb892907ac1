//! The pod network in namespaces: more pods than a bridge has ports, what a runtime may request, what a pod may not do,
//! and an uplink that changes.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and ends"
)]

mod node;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use dormouse_agent_datapath::{Config, Datapath, XdpMode};
use dormouse_agent_pod::{PodEntry, PodTable};
use dormouse_cni::message::{Bandwidth, Rate, Wanted};
use dormouse_rig::{Home, Netns, OwnedHome, Site};
use node::{Node, Recorder};

/// More than one bridge takes.
const PODS: usize = 1_100;
const CALLERS: usize = 4;

fn at(address: Ipv6Addr, socket: &UdpSocket) -> SocketAddr {
    (address, socket.local_addr().unwrap().port()).into()
}

/// Whether a datagram from one arrives at the other, from that very address.
fn reaches((from, source): (&Netns, Ipv6Addr), (to, target): (&Netns, Ipv6Addr)) -> bool {
    let socket = to.listen();
    from.send(source, at(target, &socket)).unwrap();
    let mut packet = [0; 16];
    socket
        .recv_from(&mut packet)
        .is_ok_and(|(_, peer)| peer.ip() == source)
}

#[test]
fn a_node_has_more_pods_than_one_bridge_has_ports() {
    let node = Node::start();
    let table = Recorder::default();
    let network = node.open(table.clone());
    let pods: Vec<Netns> = (0..PODS).map(|pod| node.pod(&format!("c{pod}"))).collect();
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (node, network, pods) = (&node, &network, &pods);
            scope.spawn(move || {
                for (number, pod) in pods.iter().enumerate().skip(caller).step_by(CALLERS) {
                    node.add(network, &format!("c{number}"), pod, &Wanted::default());
                }
            });
        }
    });
    let links = node.netns().ip("-o link show");
    let ports = |bridge: &str| links.matches(&format!(" master {bridge} ")).count();
    assert_eq!((ports("dormouse0"), ports("dormouse08")), (128, PODS % 128));
    drop(network);
    table
        .clone()
        .pods()
        .iter()
        .for_each(|pod| table.clone().remove(pod.address, None).unwrap());
    let network = node.open(table.clone());
    assert_eq!(table.pods().len(), PODS, "found again");

    let on = |bridge: &str| {
        let mut ours = network.pods().into_iter();
        let link = |address: Ipv6Addr| format!("dm{:08x}", address.to_bits() & 0xffff_ffff);
        let is_there = |name: &str| {
            links
                .lines()
                .any(|l| l.contains(name) && l.contains(&format!(" master {bridge} ")))
        };
        let pod = ours.find(|pod| is_there(&link(pod.address))).unwrap();
        let number: usize = pod.key.container[1..].parse().unwrap();
        (&pods[number], pod.address)
    };
    let (first, later) = (on("dormouse0"), on("dormouse01"));
    let outside = (node.outside(), Node::OUTSIDE);
    for (from, to) in [
        (first, later),
        (later, first),
        (later, outside),
        (outside, later),
        (outside, first),
    ] {
        assert!(reaches(from, to), "{} to {}", from.1, to.1);
    }
    for pod in 0..PODS {
        node.del(&network, &format!("c{pod}"));
    }
    assert!(table.pods().is_empty() && !node.netns().ip("-o link show").contains("dm0"));
    let routes = node.netns().ip("-6 route show");
    let is_pods = |line: &&str| line.starts_with("2001:") && line.contains("dormouse0");
    assert_eq!(routes.lines().find(is_pods), None, "no pod's route is left");
}

#[test]
fn packets_to_an_address_that_no_pod_has_do_not_go_back_to_the_router() {
    let node = Node::start();
    let _network = node.open(Recorder::default());
    node.netns()
        .ip(&format!("route add default via {}", Node::OUTSIDE));
    let free = Node::prefix().network().to_bits() | 0x77_7777;
    let to = SocketAddr::from((Ipv6Addr::from_bits(free), 9));
    assert!(node.netns().send(Node::ADDRESS, to).is_err());
    let route = node.netns().ip("-6 route show type unreachable");
    assert!(route.contains(&Node::prefix().to_string()), "{route}");
}

#[test]
fn pods_follow_the_uplinks_largest_packet() {
    let node = Node::start();
    let network = node.open(Recorder::default());
    let (a, b) = (node.pod("a"), node.pod("b"));
    node.add(&network, "a", &a, &Wanted::default());
    node.netns().ip("link set up0 mtu 1400");
    let reconcile = || network.reconcile().map_err(|error| error.chain());
    node.netns().enter(reconcile).unwrap();
    assert_eq!(node.add(&network, "b", &b, &Wanted::default()).mtu, 1400);
    for pod in [&a, &b] {
        assert!(pod.ip("link show eth0").contains("mtu 1400"));
    }
    let links = node.netns().ip("-o link show");
    let ours = links.lines().filter(|line| line.contains("dormouse0"));
    assert!(
        ours.clone().count() == 3 && ours.clone().all(|line| line.contains("mtu 1400")),
        "{links}"
    );
    drop(network);
    node.netns().ip("link set up0 mtu 1460");
    node.open(Recorder::default());
    assert!(
        a.ip("link show eth0").contains("mtu 1460"),
        "changed while no agent ran"
    );
}

#[test]
fn a_pod_has_the_link_layer_address_that_was_asked_for() {
    let node = Node::start();
    let table = Recorder::default();
    let network = node.open(table.clone());
    let pod = node.pod("a");
    let mac = [0x02, 0xaa, 0, 0, 0, 0x07];
    let wanted = Wanted {
        mac: Some(mac),
        ..Wanted::default()
    };
    let wired = node.add(&network, "a", &pod, &wanted);
    assert_eq!(wired.pod.mac, "02:aa:00:00:00:07");
    assert!(pod.ip("link show eth0").contains("02:aa:00:00:00:07"));
    assert!(reaches(
        (node.outside(), Node::OUTSIDE),
        (&pod, wired.address)
    ));
    drop(network);
    node.open(table.clone());
    assert_eq!(table.pods()[0].mac, mac, "found again");
}

/// Bits per second that arrive in the time.
fn measure((from, to): (&Netns, &Netns), target: Ipv6Addr, time: Duration) -> f64 {
    let listener = to.enter(|| TcpListener::bind(("::", 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut sender = from.enter(|| TcpStream::connect((target, port))).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    receiver.set_read_timeout(Some(time)).unwrap();
    let writer = std::thread::spawn(move || {
        let data = vec![0; 32 * 1024];
        // Ends when the receiver does.
        while sender.write_all(&data).is_ok() {}
    });
    let (began, mut total, mut data) = (Instant::now(), 0, vec![0; 64 * 1024]);
    while began.elapsed() < time {
        // A read with a deadline is not restarted after the machine was suspended.
        total += match receiver.read(&mut data) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
    }
    let rate = total as f64 * 8.0 / began.elapsed().as_secs_f64();
    drop(receiver);
    writer.join().unwrap();
    rate
}

fn limits(ingress: Option<u64>, egress: Option<u64>) -> Wanted {
    let rate = |bits_per_second| Rate {
        bits_per_second,
        burst_bits: 1_000_000,
    };
    Wanted {
        bandwidth: Some(Bandwidth {
            ingress: ingress.map(rate),
            egress: egress.map(rate),
        }),
        ..Wanted::default()
    }
}

#[test]
fn a_pods_traffic_is_limited_both_ways() {
    let node = Node::start();
    let network = node.open(Recorder::default());
    let (limited, free) = (node.pod("limited"), node.pod("free"));
    let wanted = limits(Some(20_000_000), Some(40_000_000));
    let limited_at = node.add(&network, "limited", &limited, &wanted).address;
    let free_at = node
        .add(&network, "free", &free, &Wanted::default())
        .address;
    let time = Duration::from_secs(3);
    let to = measure((&free, &limited), limited_at, time) / 20e6;
    assert!((0.5..1.2).contains(&to), "{to} of the rate towards the pod");
    let from = measure((&limited, &free), free_at, time) / 40e6;
    assert!(
        (0.5..1.2).contains(&from),
        "{from} of the rate from the pod"
    );
    let unlimited = measure((&free, node.outside()), Node::OUTSIDE, time);
    assert!(
        unlimited > 100e6,
        "{unlimited} bit/s from a pod without limits"
    );
    let classifiers = |link| {
        let show = format!("filter show dev {link} ingress");
        node.netns().tc(&show)
    };
    let (first, second) = (classifiers("dm00010000"), classifiers("dm00010001"));
    assert!(first.contains("limit"), "{first}");
    assert!(second.is_empty(), "{second}");
}

#[test]
fn a_pod_that_removes_its_own_limit_sends_no_more() {
    let node = Node::start();
    let home = OwnedHome::new(node.netns().name());
    let network = node.open(Programs::open(&node, &home));
    let pod = node.pod("a");
    let wanted = limits(None, Some(40_000_000));
    node.add(&network, "a", &pod, &wanted);
    let time = Duration::from_secs(2);
    let honest = measure((&pod, node.outside()), Node::OUTSIDE, time) / 40e6;
    assert!((0.5..1.2).contains(&honest), "{honest} of the rate");
    let shown = pod.tc("qdisc show dev eth0");
    assert!(shown.contains("tbf"), "{shown}");
    pod.tc("qdisc del dev eth0 root");
    let cheat = |when: &str| {
        let rate = measure((&pod, node.outside()), Node::OUTSIDE, time) / 40e6;
        assert!((0.05..1.5).contains(&rate), "{rate} of the rate {when}");
    };
    cheat("without its own limit");
    // Another agent takes over, and one that dies leaves the limit where it is.
    drop(network);
    cheat("without an agent");
    let network = node.open(Programs::open(&node, &home));
    cheat("with the next agent");
    node.del(&network, "a");
}

#[test]
fn the_kernel_takes_the_smallest_and_the_largest_limit() {
    let node = Node::start();
    let network = node.open(Recorder::default());
    for (name, bits) in [("least", 1), ("most", u64::MAX)] {
        let mut wanted = limits(Some(bits), Some(bits));
        for burst_bits in [1, u64::MAX] {
            let pod = node.pod(name);
            let limits = wanted.bandwidth.iter_mut();
            for limit in limits.flat_map(|both| [&mut both.ingress, &mut both.egress]) {
                limit.as_mut().unwrap().burst_bits = burst_bits;
            }
            node.add(&network, name, &pod, &wanted);
            node.del(&network, name);
        }
    }
}

/// The real data path, for what it drops. Its pins stay for the next one at the same home.
struct Programs {
    datapath: Datapath,
}

impl Programs {
    fn open(node: &Node, home: &Home) -> Self {
        let config = Config {
            bpffs: home.bpffs.clone(),
            uplink: Site::UPLINK.to_owned(),
            cgroup: home.cgroup.clone(),
            node_prefix: (Node::prefix().network(), Node::prefix().length()),
            node_address: Node::ADDRESS,
            flows_max: 1 << 12,
            xdp: XdpMode::Off,
            log_packets: None,
        };
        Self {
            datapath: node.netns().enter(|| Datapath::open(config)).unwrap(),
        }
    }
}

impl PodTable for Programs {
    fn add(&mut self, pod: PodEntry) -> std::io::Result<()> {
        self.datapath.pods.add(pod).map_err(std::io::Error::other)
    }

    fn remove(&mut self, address: Ipv6Addr, address4: Option<Ipv4Addr>) -> std::io::Result<()> {
        let ipv4 = address4.map(|address| address.to_ipv6_mapped());
        for address in [address].into_iter().chain(ipv4) {
            let removed = self.datapath.pods.remove(address);
            removed.map_err(std::io::Error::other)?;
        }
        Ok(())
    }
}

#[test]
fn a_pod_has_no_neighbour_but_its_gateway() {
    let node = Node::start();
    let network = node.open(Recorder::default());
    let pod = node.pod("a");
    let address = node.add(&network, "a", &pod, &Wanted::default()).address;
    // Any process may send these, without CAP_NET_RAW.
    pod.inside(|| {
        let scope = nix::net::if_::if_nametoindex("eth0")?;
        let socket = UdpSocket::bind(("::", 0))?;
        for host in 0x1000_u16..0x1100 {
            let to = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host);
            socket.send_to(b"hello", SocketAddrV6::new(to, 9, 0, scope))?;
        }
        Ok(())
    });
    let known = pod.ip("-6 neighbour show dev eth0 nud all");
    assert!(!known.contains("fe80::10"), "{known}");
    assert!(known.contains("fe80::1 "), "{known}");
    assert!(reaches((&pod, address), (node.outside(), Node::OUTSIDE)));
}

#[test]
fn a_pod_can_use_neither_address_of_another() {
    let node = Node::start();
    let home = OwnedHome::new(node.netns().name());
    let network = node.open(Programs::open(&node, &home));
    let (a, b) = (node.pod("a"), node.pod("b"));
    let at_a = node.add(&network, "a", &a, &Wanted::default()).address;
    let wired = node.add(&network, "b", &b, &Wanted::default());
    let outside = (node.outside(), Node::OUTSIDE);
    assert!(reaches((&a, at_a), outside) && reaches((&b, wired.address), outside));

    // Its IPv6 address: what leaves with it is dropped, and only that.
    a.ip(&format!("addr add {}/128 dev eth0 nodad", wired.address));
    let socket = node.outside().listen();
    a.send(wired.address, at(Node::OUTSIDE, &socket)).unwrap();
    a.send(at_a, at(Node::OUTSIDE, &socket)).unwrap();
    let mut packet = [0; 16];
    let (_, first) = socket.recv_from(&mut packet).unwrap();
    assert_eq!(first.ip(), at_a, "the one before it was dropped");
    a.ip(&format!("addr del {}/128 dev eth0", wired.address));

    // Its link-layer address: packets for it go where they went.
    a.ip(&format!("link set eth0 address {}", wired.pod.mac));
    let _ = a.send(at_a, at(Node::OUTSIDE, &socket));
    assert!(reaches(outside, (&b, wired.address)));
}

#[test]
fn no_host_and_no_pod_can_use_an_ipv4_address_of_another() {
    let node = Node::start();
    let home = OwnedHome::new(node.netns().name());
    let network = node.open_dual(Programs::open(&node, &home));
    let (a, b) = (node.pod("a"), node.pod("b"));
    let wire = |name, pod| node.add(&network, name, pod, &Wanted::default());
    let (at_a, at_b) = (wire("a", &a).address4, wire("b", &b).address4);
    let (at_a, at_b) = (at_a.unwrap(), at_b.unwrap());
    let other = Ipv4Addr::new(203, 0, 113, 7);
    for (thief, own, stolen, (to, target)) in [
        (&a, at_a, at_b, (node.outside(), Node::OUTSIDE4)),
        (&a, at_a, other, (node.outside(), Node::OUTSIDE4)),
        (&a, at_a, other, (&b, at_b)),
        (node.outside(), Node::OUTSIDE4, at_b, (&a, at_a)),
    ] {
        let link = if thief.name() == a.name() {
            "eth0"
        } else {
            "lo"
        };
        thief.ip(&format!("addr add {stolen}/32 dev {link}"));
        let socket = to.listen();
        let target = SocketAddr::new(target.into(), socket.local_addr().unwrap().port());
        thief.send(stolen, target).unwrap();
        thief.send(own, target).unwrap();
        let mut packet = [0; 16];
        let (_, first) = socket.recv_from(&mut packet).unwrap();
        assert_eq!(first.ip().to_canonical(), own, "{stolen} was dropped");
        thief.ip(&format!("addr del {stolen}/32 dev {link}"));
    }
}
