//! The node of the mutated packets: pods, apps and Services of both families; and valid packets of every kind for its hooks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dormouse_agent_datapath::{ClusterFacts, Datapath, Entry, Hook};
use dormouse_agent_inspect::frame::{Opening, ends};
use dormouse_agent_services::{Node, NodeAddresses, NodePortAddresses, Prefix};
use dormouse_agent_services::{Services, Strictness};
use dormouse_ebpf::packet::TCP;
use dormouse_rig::address::{CLIENT, FAR_POD, NODE, POD};
use dormouse_rig::frame::{
    ACK, FIN, ICMPV6, MACS, RST, SYN, SYN_ACK, ipv6, ones_sum, seal, solicitation, tcp,
};
use dormouse_rig::ip;

use super::super::direct::{FAR4, NEIGHBOR, NEIGHBOR4, SENDER, SENDER4, forwarding};
use super::super::node::{self, VIP, VIP_INDEX, serving, sleeping};
use super::super::steady::packet;
use super::services;

pub(super) const NODE4: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 1);
/// The VIP of an app whose pod is on another node.
pub(crate) const FAR_VIP: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 8);
const SLEEPING_VIP: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 9);
const UNKNOWN_VIP: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 10);
pub(super) const SERVICE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 5);
pub(crate) const SERVICE4: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 5);
/// Services whose only backend is a pod of another node.
pub(super) const AWAY: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 6);
pub(super) const AWAY4: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 6);
pub(crate) const CLIENT4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
/// The addresses of the load balancers that admit [`CLIENT`] and [`CLIENT4`] alone.
pub(crate) const RANGED: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x30, 0, 0, 0, 0, 0, 7);
pub(crate) const RANGED4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
pub(crate) const PORT: u16 = 80;
pub(super) const NODE_PORT: u16 = 30_080;
const PROTOCOLS: [u8; 3] = [6, 17, 132];
/// Addresses that a mutation may put into a packet.
pub(super) const ADDRESSES: [Ipv6Addr; 25] = [
    VIP,
    FAR_VIP,
    SLEEPING_VIP,
    UNKNOWN_VIP,
    SERVICE,
    SERVICE4.to_ipv6_mapped(),
    AWAY,
    AWAY4.to_ipv6_mapped(),
    RANGED,
    RANGED4.to_ipv6_mapped(),
    CLIENT,
    CLIENT4.to_ipv6_mapped(),
    NODE,
    NODE4.to_ipv6_mapped(),
    POD,
    SENDER,
    Ipv4Addr::from_octets(SENDER4).to_ipv6_mapped(),
    NEIGHBOR,
    Ipv4Addr::from_octets(NEIGHBOR4).to_ipv6_mapped(),
    FAR_POD,
    Ipv4Addr::from_octets(FAR4).to_ipv6_mapped(),
    Ipv6Addr::UNSPECIFIED,
    Ipv6Addr::LOCALHOST,
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
];

/// The node's data path, whose uplink's link has the clients and a pod of another node. Its loopback device is the link of the pod that has [`SENDER`].
pub(crate) fn open(node: &node::Node) -> Datapath {
    let datapath = forwarding(node);
    ip(&format!("route add {CLIENT4}/32 dev eth0"));
    for client in [IpAddr::from(CLIENT), CLIENT4.into()] {
        ip(&format!(
            "neighbour add {client} lladdr 02:00:00:00:00:55 dev eth0 nud permanent"
        ));
    }
    let app = |number, entry: Entry| Entry {
        vip: VIP_INDEX + number,
        ..entry
    };
    for entry in [
        app(0, serving(&[SENDER, NEIGHBOR])),
        app(1, serving(&[FAR_POD])),
        app(2, sleeping()),
    ] {
        datapath.apps.publish(&entry).unwrap();
    }
    let range = |text| Prefix::parse(text).unwrap();
    let addresses = vec![IpAddr::from(NODE), NODE4.into()];
    let cluster = Node {
        name: "n1".to_owned(),
        addresses: NodeAddresses {
            primary: addresses.clone(),
            local: addresses,
        },
        pod_ranges: ["2001:db8:d0::/48", "10.1.0.0/16"].map(range).into(),
        service_ranges: ["fd00:20::/112", "172.30.0.0/16"].map(range).into(),
        node_port_addresses: NodePortAddresses::Primary,
        masquerade_all: false,
    };
    datapath
        .services
        .set_cluster(&ClusterFacts::new(&cluster))
        .unwrap();
    let mut services = Services::new(cluster, Strictness::KubeProxy);
    services::add(&mut services);
    let changes = services.sync();
    datapath.services.serve(&services, &changes).unwrap();
    datapath
}

/// Valid packets, by hook.
pub(crate) fn seeds() -> Vec<(Hook, Vec<u8>)> {
    let mut seeds = Vec::new();
    let clients: [IpAddr; 2] = [CLIENT.into(), CLIENT4.into()];
    let pod: [IpAddr; 2] = [SENDER.into(), Ipv4Addr::from(SENDER4).into()];
    let node: [IpAddr; 2] = [NODE.into(), NODE4.into()];
    for (hook, sources) in [
        (Hook::UplinkIn, clients),
        (Hook::PodIn, pod),
        (Hook::UplinkOut, node),
        (Hook::PodOut, node),
        (Hook::CgroupOut, pod),
    ] {
        for source in sources {
            seeds.extend(openings(source).map(|frame| (hook, frame)));
        }
    }
    seeds.extend(segments());
    let quoted: Vec<_> = seeds
        .iter()
        .filter(|(hook, _)| *hook != Hook::CgroupOut)
        .map(|(hook, frame)| match frame[12] {
            0x86 => (*hook, error_about(frame)),
            _ => (*hook, error_about4(frame)),
        })
        .collect();
    seeds.extend(quoted);
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0x10);
    let link_layer = [1, 1, 2, 0, 0, 0, 0, 9];
    for (source, to) in [
        (CLIENT, group),
        (Ipv6Addr::UNSPECIFIED, group),
        (CLIENT, POD),
    ] {
        let frame = solicitation(MACS, (source, to), POD, &link_layer);
        seeds.extend([Hook::UplinkIn, Hook::PodIn].map(|hook| (hook, frame.clone())));
    }
    seeds
}

/// Replies of the backends on the other node to the clients, which are masqueraded as the node.
pub(crate) fn replies(datapath: &Datapath) -> Vec<(Hook, Vec<u8>)> {
    let mut replies = Vec::new();
    for (client, service) in [
        (IpAddr::from(CLIENT), IpAddr::from(AWAY)),
        (CLIENT4.into(), AWAY4.into()),
    ] {
        for protocol in PROTOCOLS {
            let request = Opening {
                source: (client, 40_000).into(),
                target: (service, PORT).into(),
                protocol,
            };
            let run = datapath.programs.run(Hook::UplinkIn, &request.frame());
            let (source, server) = ends(&run.unwrap().frame).unwrap();
            // One of a datagram is enough.
            let flags: &[u8] = if protocol == TCP {
                &[SYN_ACK, ACK, FIN, RST]
            } else {
                &[ACK]
            };
            let reply = |flags: &u8| packet(protocol, (server, source), *flags);
            replies.extend(flags.iter().map(|flags| (Hook::UplinkIn, reply(flags))));
        }
    }
    replies
}

/// First packets of a source to everything here, of every protocol.
fn openings(source: IpAddr) -> impl Iterator<Item = Vec<u8>> {
    let targets: Vec<(IpAddr, u16)> = if source.is_ipv4() {
        vec![
            (SERVICE4.into(), PORT),
            (AWAY4.into(), PORT),
            (NODE4.into(), NODE_PORT),
            (Ipv4Addr::from(NEIGHBOR4).into(), 8_000),
            (CLIENT4.into(), 9_000),
        ]
    } else {
        let apps = [VIP, FAR_VIP, SLEEPING_VIP, UNKNOWN_VIP];
        let apps = apps.map(|vip| (IpAddr::from(vip), PORT));
        let others = [
            (SERVICE.into(), PORT),
            (AWAY.into(), PORT),
            (NODE.into(), NODE_PORT),
            (NEIGHBOR.into(), 8_000),
            (FAR_POD.into(), 8_000),
            (CLIENT.into(), 9_000),
        ];
        apps.into_iter().chain(others).collect()
    };
    let echo = if source.is_ipv4() { 1 } else { ICMPV6 };
    targets.into_iter().flat_map(move |target| {
        PROTOCOLS.into_iter().chain([echo]).map(move |protocol| {
            let opening = Opening {
                source: (source, 40_000).into(),
                target: target.into(),
                protocol,
            };
            opening.frame()
        })
    })
}

/// Segments of connections to VIPs, of both sides.
fn segments() -> impl Iterator<Item = (Hook, Vec<u8>)> {
    let flags = [SYN, SYN_ACK, ACK, FIN, RST];
    flags.into_iter().flat_map(|flags| {
        let here = (CLIENT, 40_000);
        let sent = [VIP, FAR_VIP, SLEEPING_VIP, SERVICE, AWAY]
            .map(|vip| (Hook::UplinkIn, tcp(here, (vip, PORT), flags)));
        let replies = [Hook::PodIn, Hook::UplinkOut, Hook::PodOut]
            .map(|hook| (hook, tcp((SENDER, 8_000), here, flags)));
        sent.into_iter().chain(replies)
    })
}

/// The destination's report that the packet found no port, for the hook of the packets against it.
fn error_about(frame: &[u8]) -> Vec<u8> {
    let end = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
    let quoted: Vec<u8> = [
        &[1, 4, 0, 0, 0, 0, 0, 0][..],
        &frame[14..22],
        &frame[38..54],
        &frame[22..38],
        &frame[54..],
    ]
    .concat();
    seal(ipv6(MACS, (ICMPV6, 64), (end(22), end(38)), &quoted), 2)
}

/// The same by IPv4.
fn error_about4(frame: &[u8]) -> Vec<u8> {
    let (ip, rest) = frame[14..].split_at(20);
    let quoted = [&ip[..12], &ip[16..], &ip[12..16], rest].concat();
    let mut message = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
    let sum = !ones_sum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut header = ip.to_vec();
    let length = u16::try_from(header.len() + message.len()).unwrap();
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header[9] = 1;
    header[10..12].fill(0);
    let sum = !ones_sum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&frame[..14], &header, &message].concat()
}
