//! Readiness of a pod's address when ADD returns: the pod can bind it, and its first packet arrives.

use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};

use super::side::{self, Called, Side};
use crate::bench::Options;
use crate::progress::Step;
use crate::report::{Report, Row};

/// Pods that are added and deleted.
const TRIALS: usize = 10_000;
/// Namespaces that the trials reuse in turn.
const NAMESPACES: usize = 8;
/// Destination port of a pod's first packet.
const PORT: u16 = 9_000;
/// Time in which a packet must arrive.
const PACKET_LIMIT: Duration = Duration::from_secs(2);

/// Receiver of the pods' packets.
pub(super) struct Listener(UdpSocket);

impl Listener {
    /// Binds the node's own address.
    pub(super) fn open(side: &Side) -> Result<Self> {
        let listen = || UdpSocket::bind((side.node.address, PORT));
        let socket = side.node.enter(listen)??;
        socket.set_read_timeout(Some(PACKET_LIMIT))?;
        Ok(Self(socket))
    }

    /// Whether the pod can use its address at once, and its first packet arrives.
    pub(super) fn receives_from(&self, side: &Side, pod: usize, added: &Called) -> Result<bool> {
        let address: Ipv6Addr =
            side::address(&added.output).context("ADD's result has no address")?;
        let to = (side.node.address, PORT);
        let sent = dormouse_world::enter(&side.netns(pod), || {
            UdpSocket::bind((address, 0)).and_then(|socket| socket.send_to(b"first", to))
        })?;
        if sent.is_err() {
            return Ok(false);
        }
        let mut packet = [0; 16];
        let received = self.0.recv_from(&mut packet);
        Ok(received.is_ok_and(|(_, from)| from.ip() == address))
    }
}

/// Adds a pod, sends a packet from it and deletes it, again and again, with namespaces from `first` on.
pub(super) fn report(
    options: &Options,
    ours: &Side,
    first: usize,
    report: &mut Report,
) -> Result<()> {
    let step = Step::begin("add pods that send at once, and delete them");
    ours.make_pods(first, first + NAMESPACES)?;
    let listener = Listener::open(ours)?;
    let mut received = 0;
    for trial in 0..TRIALS {
        options.interrupt.check()?;
        let pod = first + trial % NAMESPACES;
        let added = ours.call("ADD", pod)?;
        received += usize::from(listener.receives_from(ours, pod, &added)?);
        ours.call("DEL", pod)?;
        step.at(&format!("{} of {TRIALS}", trial + 1));
    }
    step.done();
    let name = "pods whose first packet, sent right after ADD returned, arrives";
    let seen = format!("{received} of {TRIALS}");
    report.push(Row::claim(name, received == TRIALS, &seen));
    Ok(())
}
