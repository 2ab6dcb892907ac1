//! Datagrams of 4,096 flows to a Service, which are masqueraded and sent on to its backend on another node.
//!
//! What the driver sends goes back to the sender's end, where it is dropped; what the kernel forwards leaves by another link, whose end
//! drops it likewise. The rules of nftables have a link of their own, without any program of the data path.

use std::fs;
use std::process::Command;

use dormouse_agent_datapath::{Config, Datapath, Hook, Pinned, Verdict, detach};
use dormouse_ebpf::checksum::{add, finish, pseudo};
use dormouse_ebpf::flow::{FlowKey, REPLY};
use dormouse_ebpf::packet::{L4, UDP};
use dormouse_ebpf::steady::UDP6;
use dormouse_rows::{Bound, Row};

use crate::place::{NODE, UPLINK};
use crate::receiver::{Receiver, mac};
use crate::service::{ADDRESS, BACKEND, PORT, nft, rules, serve};
use crate::{Node, OURS, PEER, in_turn, ip};

const SENDER: &str = "measure_flows";
/// The least that forwarding in the driver costs; what lets the classifier handle all packets; what drops them.
const BARE: &str = "measure_forward";
const PASS: &str = "measure_pass";
const DROP: &str = "measure_drop";
/// The link of nftables, and its other end.
const BESIDE: &str = "up1";
const BESIDE_PEER: &str = "peer1";
/// The link by which the kernel forwards, and its other end.
const OUT: &str = "out0";
const OUT_PEER: &str = "out1";
/// The other node on each link.
const NEXT: &str = "fe80::99";
const NEXT_MAC: &str = "02:00:00:00:00:99";
/// The first of the flows' sources.
const CLIENT: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0x99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Bounds of the ratios of a packet's time: 4 times as many packets as by nftables, and 0.45 times as many as a bare forwarding; 1.3 times as
/// many as by nftables at the classifier.
const OF_NFTABLES: f64 = 0.25;
const OF_BARE: f64 = 1.0 / 0.45;
const CLASSIFIER_OF_NFTABLES: f64 = 1.0 / 1.3;
/// The part of packets that are sent on as they are meant to be, at least: the classifier handles some for the driver.
const AS_MEANT: f64 = 0.9;
/// Of the 4,096 flows, those that are there at least.
const FLOWS_MIN: u64 = 4_000;

/// Who forwards.
#[derive(Clone, Copy)]
enum Side {
    Bare,
    Driver,
    Classifier,
    Nftables,
}

pub(crate) fn measure(node: &Node) {
    let beside = connect();
    let _sinks = [PEER, OUT_PEER].map(|link| Sink::open(node, link));
    nft(&rules(BESIDE));
    serve(&node.datapath);
    establish(node);
    let sides = [Side::Bare, Side::Driver, Side::Classifier, Side::Nftables];
    let [bare, driver, classifier, nftables] =
        &in_turn(sides, |side| packet_ns(node, &beside, side));
    let row = |name: &str, (own, peer): (&Vec<f64>, &Vec<f64>), bound| {
        let row = Row::compared(name, "ns", [own, peer], |ns| *ns);
        row.must(Bound::RatioAtMost(bound)).print().unwrap();
    };
    let name = "VIP to a backend on another node, in the driver; against nftables";
    row(name, (driver, nftables), OF_NFTABLES);
    let name = "the same; against a bare XDP_TX";
    row(name, (driver, bare), OF_BARE);
    let name = "the same at the classifier; against nftables";
    row(name, (classifier, nftables), CLASSIFIER_OF_NFTABLES);
    let name = "the same by IPVS";
    Row::noted(
        name,
        "not measured: the kernel of the machine at hand has none",
    )
    .print()
    .unwrap();
}

/// Begins all flows, and answers each: they are established then, as a client's are that has got an answer.
fn establish(node: &Node) {
    route(UPLINK);
    node.receive(PASS, SENDER, &frame(UPLINK));
    let pinned = Pinned::open(&node.place.0.bpffs).unwrap();
    let mut answers = Vec::new();
    let shown = pinned.flows(|key, flow| {
        if flow.is(REPLY) {
            answers.push(*key);
        }
        true
    });
    shown.unwrap();
    for key in answers {
        let run = node.datapath.programs.run(Hook::UplinkIn, &answer(&key));
        run.unwrap();
    }
    let count = node.counted(Verdict::Established);
    assert!(count > FLOWS_MIN, "{count} flows are established");
}

/// The way to the backend.
fn route(link: &str) {
    ip(&format!(
        "-6 route replace {BACKEND}/128 via {NEXT} dev {link}"
    ));
}

/// The CPU time of the receiver for a packet, in nanoseconds.
fn packet_ns(node: &Node, beside: &Receiver, side: Side) -> f64 {
    let link = match side {
        Side::Bare | Side::Driver => UPLINK,
        Side::Classifier | Side::Nftables => OUT,
    };
    route(link);
    let sent_on = || match side {
        Side::Bare => None,
        Side::Driver => Some(node.counted(Verdict::XdpForwarded)),
        Side::Classifier | Side::Nftables => Some(sent(OUT)),
    };
    let before = sent_on();
    let seen = match side {
        Side::Bare => node.receive(BARE, SENDER, &frame(UPLINK)),
        Side::Driver => node.receive(OURS, SENDER, &frame(UPLINK)),
        Side::Classifier => node.receive(PASS, SENDER, &frame(UPLINK)),
        Side::Nftables => node.send(beside, BESIDE_PEER, (SENDER, &frame(BESIDE))),
    };
    if let Some((before, after)) = before.zip(sent_on()) {
        seen.check(after - before, AS_MEANT);
    }
    seen.packet_ns()
}

/// The other end of a link by which packets leave, which drops what it gets in its driver: a veth takes frames of a program only if it has a
/// program itself, and with one all sides end alike.
struct Sink {
    config: Config,
    /// None while it is removed.
    datapath: Option<Datapath>,
}

impl Sink {
    fn open(node: &Node, link: &str) -> Self {
        let mut config = node.place.0.clone();
        let name = config.bpffs.file_name().unwrap().to_string_lossy();
        let pins = format!("{name}-{link}");
        config.bpffs.set_file_name(pins);
        link.clone_into(&mut config.uplink);
        let datapath = Datapath::open(config.clone()).unwrap();
        datapath.programs.replace_xdp(&config, DROP).unwrap();
        Self {
            config,
            datapath: Some(datapath),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.datapath = None;
        detach(&self.config.bpffs).unwrap();
    }
}

/// Makes the other links and the way to the other node; the thread that receives for nftables.
fn connect() -> Receiver {
    for (link, peer) in [(BESIDE, BESIDE_PEER), (OUT, OUT_PEER)] {
        ip(&format!("link add {link} type veth peer name {peer}"));
        ip(&format!("link set {peer} up"));
        ip(&format!("link set {link} up"));
    }
    ip(&format!("address add {NODE}/128 dev lo nodad"));
    for link in [UPLINK, OUT] {
        ip(&format!(
            "neighbour add {NEXT} lladdr {NEXT_MAC} dev {link} nud permanent"
        ));
    }
    fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    // It polls, as with a program.
    let mut features = Command::new("ethtool");
    let features = features.args(["--features", BESIDE, "gro", "on"]);
    assert!(features.status().unwrap().success());
    Receiver::open(BESIDE)
}

/// Packets that have left by a link.
fn sent(link: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, counts) = lines.find(|(name, _)| name.trim() == link).unwrap();
    // Eight columns are of what was received; the next ones are bytes and packets.
    counts.split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// A datagram of the first flow, for a link: its payload is a copy of its headers, for the sender, and a word that makes the checksum right, which the
/// copy has, too.
fn frame(link: &str) -> Vec<u8> {
    let key = FlowKey {
        source: CLIENT,
        target: ADDRESS.octets(),
        source_port: u16::MAX,
        target_port: PORT,
        protocol: UDP.into(),
    };
    let data = u16::try_from(UDP6).unwrap() + 2;
    let head = headers(mac(link), &key, data, [0x12, 0x34]);
    let word = checksum(&key, 8 + data, &[&head[L4..], &head[..]].concat());
    [&head[..], &head, &word].concat()
}

/// The backend's answer to a flow, without data.
fn answer(key: &FlowKey) -> Vec<u8> {
    let mut frame = headers(mac(UPLINK), key, 0, [0, 0]);
    let check = checksum(key, 8, &frame[L4..]);
    frame[UDP6 - 2..].copy_from_slice(&check);
    frame
}

/// The headers of a datagram with this many bytes of data.
fn headers(to: [u8; 6], key: &FlowKey, data: u16, check: [u8; 2]) -> Vec<u8> {
    let len = (8 + data).to_be_bytes();
    let [from_port, to_port] = [key.source_port, key.target_port].map(u16::to_be_bytes);
    let parts: [&[u8]; 10] = [
        &to,
        &[2, 0, 0, 0, 0, 9, 0x86, 0xdd, 0x60, 0, 0, 0],
        &len,
        &[UDP, 64],
        &key.source,
        &key.target,
        &from_port,
        &to_port,
        &len,
        &check,
    ];
    parts.concat()
}

/// The checksum of a datagram of this length, over its pseudo-header and these words.
fn checksum(key: &FlowKey, len: u16, words: &[u8]) -> [u8; 2] {
    let begin = pseudo(&key.source, &key.target, len, UDP);
    let words = words.as_chunks::<2>().0.iter();
    finish(words.fold(begin, add)).to_be_bytes()
}
