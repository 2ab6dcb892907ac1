//! What a program may do with a packet, judged without the code under test.

use std::net::{Ipv4Addr, Ipv6Addr};

use dormouse_agent_datapath::{Hook, Run};
use dormouse_rig::address::{FAR_POD, NODE, POD};
use dormouse_rig::tcx::{DROP, NEXT, PASS, REDIRECT};

use super::super::direct::{FAR4, NEIGHBOR, NEIGHBOR4, SENDER, SENDER4};
use super::super::node::ACTING;
use super::bytes::{ETHERNET, ICMP, ICMPV6, TCP, View, header_residue, is_ip, residue, view};
use super::world::{FAR_VIP, NODE4, RANGED, RANGED4};

/// The bit of a link-layer address that a group has (IEEE 802).
const GROUP: u8 = 1;

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Dropped,
    /// Left to the kernel as it was.
    Left,
    /// Sent on by the program as it was, but for one hop less.
    Forwarded,
    /// With a backend instead of a frontend, or as an error about such a packet.
    Translated,
    /// A backend's reply, with the ends that the client knows.
    Reversed,
    /// Replaced by an answer to its sender.
    Answered,
}

impl Outcome {
    pub(super) const ALL: [Self; 6] = [
        Self::Dropped,
        Self::Left,
        Self::Forwarded,
        Self::Translated,
        Self::Reversed,
        Self::Answered,
    ];
}

type Judgement = Result<Outcome, &'static str>;

/// The frame that went into a program, and the one that came out.
struct Passage<'a> {
    hook: Hook,
    redirected: bool,
    sent: &'a [u8],
    passed: &'a [u8],
    before: View,
    after: View,
}

/// Judges a run of a hook's program over a frame.
pub(super) fn judge(hook: Hook, sent: &[u8], run: &Run) -> Judgement {
    if hook == Hook::CgroupOut {
        return match run.verdict {
            0 => Ok(Outcome::Dropped),
            // A test run on a cgroup's program has no link-layer header.
            1 if run.frame[ETHERNET..] == sent[ETHERNET..] => Ok(Outcome::Left),
            _ => Err("a program that only allows or denies did something else"),
        };
    }
    let redirected = match run.verdict {
        DROP => return Ok(Outcome::Dropped),
        NEXT | PASS => false,
        REDIRECT => true,
        _ => return Err("no verdict of a packet program"),
    };
    let Some(before) = view(sent) else {
        let unread = !redirected && run.frame == sent;
        return match (unread, hook) {
            (false, _) => Err("no whole IP packet, and it was changed or sent on"),
            (true, Hook::UplinkIn | Hook::PodIn) if is_ip(sent) => {
                Err("no whole IP packet, and it was let in")
            }
            (true, _) => Ok(Outcome::Left),
        };
    };
    let after = view(&run.frame).ok_or("no whole IP packet came out")?;
    let passage = Passage {
        hook,
        redirected,
        sent,
        passed: &run.frame,
        before,
        after,
    };
    passage.judge()
}

impl Passage<'_> {
    fn judge(&self) -> Judgement {
        let Self { before, after, .. } = self;
        if self.is_answer() {
            return self.judge_answer();
        }
        self.judge_source()?;
        if !self.redirected && self.passed == self.sent {
            return self.judge_left();
        }
        if self.passed.len() != self.sent.len() || after.protocol != before.protocol {
            return Err("another length or protocol");
        }
        if residue(self.sent, before) != residue(self.passed, after) {
            return Err("the checksum is not what it was");
        }
        if header_residue(self.sent, before) != header_residue(self.passed, after) {
            return Err("the header's checksum is not what it was");
        }
        let enters = matches!(self.hook, Hook::UplinkIn | Hook::PodIn);
        if self.redirected && enters && (after.hops == 0 || after.hops + 1 != before.hops) {
            return Err("sent on without one hop less");
        }
        if before.headless && !before.fragment {
            return Err("sent on without a protocol's header");
        }
        if (before.source, before.target) == (after.source, after.target) {
            return self.judge_unchanged();
        }
        self.judge_translation()
    }

    /// A pod has its own addresses only, and no packet from outside has those of the node and its pods.
    fn judge_source(&self) -> Result<(), &'static str> {
        let source = self.before.source;
        let allowed = match self.hook {
            Hook::UplinkIn => !is_local(source),
            Hook::PodIn => {
                let own = [SENDER, v4(SENDER4.into())].contains(&source);
                let neighborly = source.is_unspecified() || source.is_unicast_link_local();
                own || neighborly && !self.redirected && self.sent == self.passed
            }
            _ => true,
        };
        allowed.then_some(()).ok_or("a forged source passed")
    }

    /// The host's router would send a packet to a VIP back. The kernel forwards none that came in a frame to a group.
    fn judge_left(&self) -> Judgement {
        let is_for_group = self.sent[0] & GROUP != 0;
        if is_for_group && self.hook == Hook::UplinkIn {
            return Ok(Outcome::Left);
        }
        // A node's own connections that bypass the socket hooks are translated when they come back.
        if matches!(self.hook, Hook::UplinkIn | Hook::PodIn) && is_vip(self.before.target) {
            return Err("left to the kernel, which would send it to its router and get it back");
        }
        Ok(Outcome::Left)
    }

    fn judge_unchanged(&self) -> Judgement {
        if is_vip(self.before.target) && self.before.target != FAR_VIP {
            return Err("sent on to a VIP");
        }
        Ok(Outcome::Forwarded)
    }

    fn judge_translation(&self) -> Judgement {
        let Self { before, after, .. } = self;
        let same_source = before.source == after.source;
        let there = before.target != after.target
            && is_frontend(before.target)
            && is_backend(after.target)
            && (same_source || is_node(after.source));
        let back = is_backend(before.source)
            && (is_frontend(after.source) || same_source)
            && (before.target == after.target || is_node(before.target));
        // A router reports to the source of the packet that it quotes, which no backend knows.
        let reported = is_icmp(after)
            && (same_source || is_frontend(after.source))
            && quoted_source(self.passed, after) == Some(after.target);
        if there || reported {
            Ok(Outcome::Translated)
        } else if back {
            Ok(Outcome::Reversed)
        } else {
            Err("translated between ends that no connection has")
        }
    }

    /// Whether it is not the packet that was sent: an ICMP error, a reset, or an advertisement.
    fn is_answer(&self) -> bool {
        let (before, after) = (&self.before, &self.after);
        let byte = |at: usize| self.passed.get(after.l4 + at) != self.sent.get(before.l4 + at);
        let another = after.protocol != before.protocol
            || self.passed.len() != self.sent.len()
            || is_icmp(after) && byte(0)
            || after.protocol == TCP && byte(13);
        self.redirected && another
    }

    fn judge_answer(&self) -> Judgement {
        let (before, after) = (&self.before, &self.after);
        if residue(self.passed, after) != Some(0)
            || header_residue(self.passed, after).unwrap_or(0) != 0
        {
            return Err("an answer with a wrong checksum");
        }
        if before.source.is_multicast()
            || before.source.is_loopback()
            || before.target.is_multicast() && after.hops != 255
        {
            return Err("an answer to a group, or to no host");
        }
        let advertises = after.protocol == ICMPV6 && self.passed[after.l4] == 136;
        if advertises {
            return is_local(after.source)
                .then_some(Outcome::Answered)
                .ok_or("an advertisement of an address that is not here");
        }
        if after.target != before.source {
            return Err("an answer to another than the sender");
        }
        if after.source != before.target && !is_node(after.source) {
            return Err("an answer from neither the packet's target nor the node");
        }
        Ok(Outcome::Answered)
    }
}

fn is_icmp(view: &View) -> bool {
    matches!(view.protocol, ICMP | ICMPV6)
}

/// The source of the packet that an ICMP error quotes.
fn quoted_source(frame: &[u8], error: &View) -> Option<Ipv6Addr> {
    let quoted = frame.get(error.l4 + 8..error.end)?;
    if error.v4 {
        let octets: [u8; 4] = quoted.get(12..16)?.try_into().ok()?;
        return Some(v4(octets.into()));
    }
    let octets: [u8; 16] = quoted.get(8..24)?.try_into().ok()?;
    Some(octets.into())
}

fn v4(address: Ipv4Addr) -> Ipv6Addr {
    address.to_ipv6_mapped()
}

fn within(address: Ipv6Addr, prefix: Ipv6Addr, length: u32) -> bool {
    (address.to_bits() ^ prefix.to_bits()) >> (128 - length) == 0
}

fn is_node(address: Ipv6Addr) -> bool {
    address == NODE || address == v4(NODE4)
}

/// Of the node's prefix, or an IPv4 address of its pods.
fn is_local(address: Ipv6Addr) -> bool {
    within(address, NODE, 96)
        || [SENDER4, NEIGHBOR4]
            .map(|pod| v4(pod.into()))
            .contains(&address)
}

/// Of a range of VIPs.
fn is_vip(address: Ipv6Addr) -> bool {
    within(address, FAR_VIP, 108)
        || within(address, Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 0), 112)
        || within(address, v4(Ipv4Addr::new(172, 30, 0, 0)), 112)
}

/// Whether the packet's target is a VIP of this node: that of an app on another one is forwarded there.
pub(super) fn is_to_vip(frame: &[u8]) -> bool {
    view(frame).is_some_and(|view| is_vip(view.target) && view.target != FAR_VIP)
}

fn is_frontend(address: Ipv6Addr) -> bool {
    [RANGED, RANGED4.to_ipv6_mapped()].contains(&address) || is_vip(address) || is_node(address)
}

fn is_backend(address: Ipv6Addr) -> bool {
    is_local(address)
        || [POD, FAR_POD, v4(FAR4.into()), NEIGHBOR].contains(&address)
        || within(address, ACTING, 96)
}
