//! Whether a pod can use its address at the moment when ADD returns: it binds, and its first packet arrives.

use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};

use super::side::{self, Called, Side};
use crate::bench::Options;
use crate::progress::Step;
use crate::report::{Report, Row};

/// Pods that come and go.
const TRIALS: usize = 10_000;
/// The trials' namespaces: a pod that comes finds one that is no longer in use.
const NAMESPACES: usize = 8;
/// Where pods send their first packet.
const PORT: u16 = 9_000;
/// How long a packet may be under way.
const PACKET_LIMIT: Duration = Duration::from_secs(2);

/// Who waits for pods' packets.
pub(super) struct Listener(UdpSocket);

impl Listener {
    /// Listens at the node's own address.
    pub(super) fn open(side: &Side) -> Result<Self> {
        let listen = || UdpSocket::bind((side.node.address, PORT));
        let socket = side.node.enter(listen)??;
        socket.set_read_timeout(Some(PACKET_LIMIT))?;
        Ok(Self(socket))
    }

    /// Whether the pod can use its address at once, and its first packet arrives.
    pub(super) fn hears(&self, side: &Side, pod: usize, added: &Called) -> Result<bool> {
        let address: Ipv6Addr =
            side::address(&added.answer).context("ADD's answer has no address")?;
        let to = (side.node.address, PORT);
        let sent = dormouse_world::enter(&side.netns(pod), || {
            UdpSocket::bind((address, 0)).and_then(|socket| socket.send_to(b"first", to))
        })?;
        if sent.is_err() {
            return Ok(false);
        }
        let mut packet = [0; 16];
        let heard = self.0.recv_from(&mut packet);
        Ok(heard.is_ok_and(|(_, from)| from.ip() == address))
    }
}

/// Pods numbered from `first` on come, speak and go, one after the other.
pub(super) fn report(
    options: &Options,
    ours: &Side,
    first: usize,
    report: &mut Report,
) -> Result<()> {
    let step = Step::begin("add pods that speak at once, and delete them");
    ours.make_pods(first, first + NAMESPACES)?;
    let listener = Listener::open(ours)?;
    let mut heard = 0;
    for trial in 0..TRIALS {
        options.interrupt.check()?;
        let pod = first + trial % NAMESPACES;
        let added = ours.call("ADD", pod)?;
        heard += usize::from(listener.hears(ours, pod, &added)?);
        ours.call("DEL", pod)?;
        step.at(&format!("{} of {TRIALS}", trial + 1));
    }
    step.done();
    let name = "pods whose first packet arrives when it is sent as soon as ADD returned";
    let seen = format!("{heard} of {TRIALS}");
    report.push(Row::claim(name, heard == TRIALS, &seen));
    Ok(())
}
