//! A pod that forges the senders of ARP and neighbour discovery, and the node's own neighbour discovery meanwhile.

use std::io;
use std::net::{Ipv6Addr, UdpSocket};
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use dormouse_world::{Host, PacketSocket, enter};

use super::super::Options;
use super::super::dataplane::commands::{ip, run};
use super::super::dataplane::pods::make_one;
use super::super::dataplane::{Bench, ours};
use super::node::world;
use crate::progress::Step;
use crate::report::{Bound, Report, Row};

/// Hosts that the node has not spoken to, one address each.
const NEIGHBORS: u16 = 100;
/// Forged senders that the pod sends from before the node sends to its neighbours. By default a neighbour table has at most 1,024
/// entries (`gc_thresh3`).
const SENDERS: u32 = 20_000;
const FLOOD_LIMIT: Duration = Duration::from_mins(1);
/// Longer than a neighbour is solicited: three times, a second apart (RFC 4861 10).
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// For a neighbour after one that did not get its packet: all of them were sent at once.
const LATE_LIMIT: Duration = Duration::from_millis(1);
const PORT: u16 = 9;

/// The node's IPv4 address, which forged ARP requests ask for.
const NODE4: [u8; 4] = [198, 51, 100, 1];
const NODE4_TEXT: &str = "198.51.100.1/32";
const BRIDGE: &str = "dormouse0";
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const GATEWAY_MAC: [u8; 6] = [0x02, 0xd0, 0, 0, 0, 1];

/// Counts the node's first packets that its neighbours do not get, and the entries of the pod's forged neighbours.
pub(super) fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let world = world(1)?;
    let bench = Bench::new(options, &world)?;
    let node = world.nodes().first().context("the world has no node")?;
    let step = Step::begin("start a node with a pod, and its neighbours");
    let _agent = ours::start(&bench, node, &[])?;
    let plugin = &options.binaries.cni;
    let pod = make_one(node, "forger", |node, pod| ours::wire(plugin, node, pod))?;
    let addresses = (0..NEIGHBORS).map(neighbor);
    let lines = addresses.map(|address| format!("address add {address}/64 dev eth0 nodad"));
    ip(Some(&world.client().netns), &lines.collect::<Vec<_>>())?;
    let route = "route add 2001:db8:c0::/64 dev eth0".to_owned();
    ip(Some(&node.netns), &[route])?;
    let address4 = ["ip", "address", "add", NODE4_TEXT, "dev", node.uplink()];
    run(Some(&node.netns), &address4, "")?;
    step.done();

    let step = Step::begin("send to 100 neighbours while the pod forges others");
    let (sent, ends) = (AtomicU32::new(0), AtomicBool::new(false));
    let lost = thread::scope(|scope| {
        let flood = scope.spawn(|| forge(&pod.host.netns, &sent, &ends));
        let lost = options
            .interrupt
            .wait_for("the flood", FLOOD_LIMIT, || {
                let enough = sent.load(Ordering::Relaxed) >= SENDERS || flood.is_finished();
                Ok(enough.then_some(()))
            })
            .and_then(|()| lost(node, world.client()));
        ends.store(true, Ordering::Relaxed);
        let flooded = flood.join();
        let flooded = flooded.unwrap_or_else(|panicked| panic::resume_unwind(panicked));
        flooded.context("failed to send from the pod")?;
        lost
    })?;
    let learned = learned(node)?;
    step.done();
    let unit = format!("of {NEIGHBORS}");
    let lost = Row::counted("the node's first packets to neighbours, lost", lost, &unit);
    report.push(lost.must(Bound::AtMost(0.0)));
    let forged = sent.into_inner();
    report.push(Row::counted("forged senders", forged.into(), "neighbours"));
    let learned = Row::counted("forged neighbours in the node's tables", learned, "entries");
    report.push(learned.must(Bound::AtMost(0.0)));
    Ok(())
}

fn neighbor(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xc0, 0, 0, 0, 1, number)
}

/// The neighbours that do not get a datagram of the node.
fn lost(node: &Host, client: &Host) -> Result<u64> {
    let bound = enter(&client.netns, || {
        let sockets = (0..NEIGHBORS).map(|number| UdpSocket::bind((neighbor(number), PORT)));
        sockets.collect::<io::Result<Vec<_>>>()
    })?;
    let sockets = bound.context("failed to bind the neighbours' sockets")?;
    let sent: Vec<bool> = enter(&node.netns, || {
        let send = |number| UdpSocket::bind("[::]:0")?.send_to(b"hello", (neighbor(number), PORT));
        (0..NEIGHBORS).map(|number| send(number).is_ok()).collect()
    })?;
    let mut lost = 0;
    for (socket, sent) in sockets.iter().zip(sent) {
        let limit = if lost == 0 { ANSWER_LIMIT } else { LATE_LIMIT };
        socket.set_read_timeout(Some(limit))?;
        if !sent || socket.recv(&mut [0; 8]).is_err() {
            lost += 1;
        }
    }
    Ok(lost)
}

/// Neighbour entries on the pods' bridge that the node has not created itself.
fn learned(node: &Host) -> Result<u64> {
    let mut learned = 0;
    for family in ["-4", "-6"] {
        let words = ["ip", family, "neigh", "show", "dev", BRIDGE, "nud", "all"];
        let entries = run(Some(&node.netns), &words, "")?;
        let lines = entries.lines();
        learned += lines
            .filter(|line| !line.contains("PERMANENT") && !line.contains("NOARP"))
            .count();
    }
    Ok(learned as u64)
}

/// Sends requests of one forged sender after the other until it `ends`.
fn forge(netns: &Path, sent: &AtomicU32, ends: &AtomicBool) -> io::Result<()> {
    let socket = enter(netns, || PacketSocket::open("eth0")).map_err(io::Error::other)??;
    while !ends.load(Ordering::Relaxed) {
        let sender = sent.fetch_add(1, Ordering::Relaxed);
        for frame in [arp(sender), solicitation(sender)] {
            socket.send(&frame)?;
        }
    }
    Ok(())
}

fn mac(sender: u32) -> [u8; 6] {
    let [a, b, c, d] = sender.to_be_bytes();
    [2, 0xee, a, b, c, d]
}

/// An ARP request for the node (RFC 826).
fn arp(sender: u32) -> Vec<u8> {
    let [_, b, c, d] = sender.to_be_bytes();
    let (mac, head) = (mac(sender), [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    let addresses = [203, b, c, d, 0, 0, 0, 0, 0, 0];
    [&[0xff; 6][..], &mac, &head, &mac, &addresses, &NODE4].concat()
}

/// A Neighbor Solicitation for the gateway with a link-layer address (RFC 4861 4.3).
fn solicitation(sender: u32) -> Vec<u8> {
    let source = Ipv6Addr::from_bits(0xfe80 << 112 | 0xee << 32 | u128::from(sender));
    let addresses = [source.octets(), GATEWAY.octets()].concat();
    let body = [&GATEWAY.octets()[..], &[1, 1], &mac(sender)].concat();
    // The pseudo-header's length and protocol.
    let pseudo = [0, 32, 0, 58];
    let sum = checksum(&[&addresses[..], &pseudo, &[135, 0], &body].concat());
    let head = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255];
    let message = [135, 0, sum[0], sum[1], 0, 0, 0, 0];
    [
        &GATEWAY_MAC[..],
        &mac(sender),
        &head,
        &addresses,
        &message,
        &body,
    ]
    .concat()
}

/// The internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks_exact(2);
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [.., high, low] = (!sum).to_be_bytes();
    [high, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solicitations_have_a_right_checksum() {
        let frame = solicitation(0x1234_5678);
        assert_eq!(frame.len(), 14 + 40 + 32);
        let pseudo = [0, 32, 0, 58];
        let whole = [&frame[22..54], &pseudo, &frame[54..]].concat();
        assert_eq!(checksum(&whole), [0, 0]);
    }

    #[test]
    fn each_sender_has_addresses_of_its_own() {
        assert_ne!(arp(1), arp(2));
        assert_ne!(solicitation(1)[22..38], solicitation(2)[22..38]);
        assert_eq!(arp(1).len(), 14 + 28);
    }
}
