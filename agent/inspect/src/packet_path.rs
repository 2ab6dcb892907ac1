//! The path of a connection's first packet on this node, and the reason for each step.
//!
//! Packet programs run again, as separate copies over the node's own maps (BPF test run). Socket hooks have no test run:
//! their decision function runs in user space, over the same maps.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dormouse_agent_datapath::{
    Explained, Explainer, FrontendAddress, Hook, PacketState, Pinned, Verdict, octets,
};
use dormouse_agent_ipam::allocator::QUARANTINE_DEFAULT;

use super::InspectError;
use super::explanation::{Explanation, From, Outcome};
use super::frame::Opening;
use super::names::{Names, Source};
use super::render::{Evidence, Line, Renderer, direct};
use super::route;
use dormouse_ebpf::decide::{
    Choice, Request, Tables as _, decide, is_external_ip, is_node_address,
};
use dormouse_ebpf::flow::{FlowKey, flow_hash};
use dormouse_ebpf::packet::UDP;
use dormouse_ebpf::socket::Call;
use dormouse_ebpf::stage::Stage;
use dormouse_ebpf::wake_limit::WakeSource;

mod socket;

/// One packet to explain.
#[derive(Debug)]
pub struct PacketPath<'a> {
    pinned: &'a Pinned,
    names: &'a Names,
    opening: Opening,
    from: From,
    /// The packet does not come from a socket, so the socket hooks do not see it.
    bare: bool,
}

impl<'a> PacketPath<'a> {
    /// A packet to explain; `bare`: it bypasses the socket hooks. Without `from`, the origin follows from the source address.
    pub fn new(source: Source<'a>, opening: Opening, from: Option<From>, bare: bool) -> Self {
        let Source { pinned, names } = source;
        let source = opening.source.ip();
        let from = from.unwrap_or_else(|| {
            if pinned.pod(source).is_some() {
                From::Pod
            } else if is_node_address(pinned, pinned.facts(), &octets(source)) {
                From::Node
            } else {
                From::Outside
            }
        });
        Self {
            pinned,
            names,
            opening,
            from,
            bare,
        }
    }

    /// Runs the hooks that the packet meets, and explains their decisions.
    pub fn explain(self) -> Result<Explanation, InspectError> {
        let mut found = Explanation {
            opening: self.opening,
            from: self.from,
            service: self
                .names
                .at(&frontend(&self.opening))
                .map(ToOwned::to_owned),
            lines: Vec::new(),
            outcome: Outcome::Passed,
            ends: Some((self.opening.source, self.opening.target)),
            stopped: None,
        };
        found.lines.extend(self.stale());
        let mut sent = self.opening;
        if self.from != From::Outside && !self.bare && !self.opening.is_echo() {
            let call = self.socket(&mut found.lines, &mut sent);
            if let Call::Refused(verdict) = call {
                found.stop(Outcome::Refused, Some(verdict));
                found.ends = None;
                return Ok(found);
            }
        }
        self.packet(sent, &mut found)?;
        Ok(found)
    }

    /// A line about an app's entry that is used after the end of the node lease.
    fn stale(&self) -> Option<Line> {
        self.pinned.facts().vip(&octets(self.opening.target.ip()))?;
        let over = self.pinned.stale_for()?;
        Some(Line {
            hook: "",
            topic: "lease",
            text: stale(over),
            evidence: Evidence::Read,
        })
    }

    /// A line about the uplink's driver, if that judges the packet before this hook.
    fn by_driver(&self, hook: Hook) -> Option<Line> {
        (hook == Hook::UplinkIn && self.pinned.has_xdp()).then(|| Line {
            hook: Hook::UplinkXdp.program(),
            topic: "driver",
            text: "judges the packet first, by the same rules".to_owned(),
            evidence: Evidence::Read,
        })
    }

    /// The packet program at the hook where the packet enters.
    fn packet(&self, sent: Opening, found: &mut Explanation) -> Result<(), InspectError> {
        let (hook, ifindex) = self.hook(sent.source.ip());
        let line = |topic, text: String, evidence| Line {
            hook: hook.program(),
            topic,
            text,
            evidence,
        };
        let stays = self.stays(sent.target.ip());
        if self.from == From::Node && stays {
            found.outcome = Outcome::Delivered;
            found.ends = Some((sent.source, sent.target));
            let text = "local: the packet does not leave by the uplink".to_owned();
            found.lines.push(line("route", text, Evidence::Read));
            return Ok(());
        }
        found.lines.extend(self.by_driver(hook));
        let state = self.state(&sent);
        found
            .lines
            .push(line("flow", self.known(&state), Evidence::Read));
        let mut explainer = Explainer::open(self.pinned, hook)?;
        explainer.copy_in(&state)?;
        let mut frame = sent.frame();
        if hook == Hook::UplinkIn {
            // The program ignores frames to another link-layer address.
            frame[..6].copy_from_slice(&self.pinned.facts().uplink_mac);
        }
        let run = explainer.run(&frame, ifindex)?;
        let direct = direct(&run.steps);
        // Of a known flow, after a socket hook's translation, or on the way out, no frontend is expected: a miss is not worth a line.
        let expected =
            state.flows.is_empty() && sent.target == self.opening.target && hook != Hook::UplinkOut;
        let decided = run.steps.len() > usize::from(direct.is_some());
        if reached_decision(&run) && (expected || decided) {
            let rendered = self.renderer(sent, false).render(&run.steps);
            found.lines.extend(
                rendered
                    .into_iter()
                    .map(|(topic, text)| line(topic, text, Evidence::Run)),
            );
        }
        found.conclude(&run, &sent, stays, line);
        self.onward(&sent, direct, found, line);
        Ok(())
    }

    /// Adds the lines about a packet's way after the program; `direct`: into a pod, or out by the uplink, without the host's stack.
    fn onward(
        &self,
        sent: &Opening,
        direct: Option<bool>,
        found: &mut Explanation,
        line: impl Fn(&'static str, String, Evidence) -> Line,
    ) {
        if let Some(into_pod) = direct {
            let way = if into_pod {
                "directly to the pod"
            } else {
                "directly to the uplink"
            };
            let text = format!("{way}, bypassing the host's network stack");
            found.lines.push(line("forward", text, Evidence::Run));
        }
        let forwarded = found.outcome == Outcome::Forwarded && direct.is_none();
        match found.ends {
            Some((_, target)) if forwarded && target == sent.target => {
                let text = "unchanged, to the backend's node, which translates the VIP";
                found
                    .lines
                    .push(line("forward", text.to_owned(), Evidence::Run));
            }
            Some((_, target)) if matches!(found.outcome, Outcome::Forwarded | Outcome::Passed) => {
                let route = route::to(target.ip());
                let returns = self.returns(target.ip(), &route);
                found.lines.push(line("route", route.text, Evidence::Read));
                if returns {
                    found.returned();
                }
            }
            _ => {}
        }
    }

    /// Whether the kernel would send the packet back to the router that it came from: the program at the uplink's egress drops it.
    fn returns(&self, target: IpAddr, route: &route::Route) -> bool {
        self.from == From::Outside
            && route.interface == Some(self.pinned.facts().uplink)
            && is_external_ip(self.pinned, &octets(target))
    }

    /// The hook at which the packet enters, and the interface.
    fn hook(&self, source: IpAddr) -> (Hook, u32) {
        let uplink = self.pinned.facts().uplink;
        match self.from {
            From::Outside => (Hook::UplinkIn, uplink),
            From::Node => (Hook::UplinkOut, uplink),
            From::Pod => {
                let pod = self.pinned.pod(source);
                (Hook::PodIn, pod.map_or(0, |pod| pod.ifindex))
            }
        }
    }

    /// The entries in the programs' own maps (flows, affinity, touch) that this packet's decision reads.
    fn state(&self, sent: &Opening) -> PacketState {
        let key = FlowKey {
            source: octets(sent.source.ip()),
            target: octets(sent.target.ip()),
            source_port: sent.source.port(),
            target_port: sent.target.port(),
            protocol: sent.protocol.into(),
        };
        let mut flows = Vec::new();
        if let Some(flow) = self.pinned.flow(&key) {
            let back = key.reply(&flow);
            flows.push((key, flow));
            flows.extend(self.pinned.flow(&back).map(|flow| (back, flow)));
        }
        self.pinned.take_affinity();
        let asked = Request {
            source: key.source,
            target: key.target,
            port: key.target_port,
            protocol: key.protocol(),
            consistent: self.from == From::Outside,
            hash: flow_hash(&key),
            ..Request::default()
        };
        // Only to learn which affinity entries it looks up.
        decide(self.pinned, &asked, &mut Choice::default());
        self.pinned.take_steps();
        let vip = self.pinned.facts().vip(&key.target);
        PacketState {
            flows,
            affinity: self.pinned.take_affinity(),
            touch: vip.and_then(|vip| Some((vip, self.pinned.touch(vip)?))),
            budget: self.budget(sent.source.ip()),
        }
    }

    /// The bucket of wakes of a packet's sender.
    fn budget(&self, source: IpAddr) -> Option<(WakeSource, u64)> {
        let sender = match self.from {
            From::Pod => WakeSource::pod(self.pinned.pod(source)?.ifindex),
            _ => WakeSource::outside(&octets(source)),
        };
        Some((sender, self.pinned.wake_budget(&sender)?))
    }

    fn known(&self, state: &PacketState) -> String {
        let Some((_, flow)) = state.flows.first() else {
            return "none".to_owned();
        };
        let end = SocketAddr::new(IpAddr::from(flow.target).to_canonical(), flow.target_port);
        let idle_s = self.pinned.now_ns().saturating_sub(flow.seen_ns) / 1_000_000_000;
        let next = if self.opening.protocol == UDP || Stage(flow.stage).is_established() {
            "reused while its backend exists"
        } else {
            "a new connection gets a new decision"
        };
        format!("exists, to {end}, idle for {idle_s}s; {next}")
    }

    /// Whether the address is a local address of the node, or in its pod prefix.
    fn stays(&self, address: IpAddr) -> bool {
        let config = self.pinned.facts();
        let address = octets(address);
        config.is_local(&address) || is_node_address(self.pinned, config, &address)
    }

    fn renderer(&self, opening: Opening, by_socket: bool) -> Renderer<'a> {
        Renderer {
            by_socket,
            pinned: self.pinned,
            names: self.names,
            target: frontend(&opening),
        }
    }
}

/// How long entries are used without a lease, and what that means.
fn stale(over: Duration) -> String {
    let seconds = over.as_secs();
    let reused = if over > QUARANTINE_DEFAULT {
        "; so long that other pods may have addresses in them by now"
    } else {
        ""
    };
    format!(
        "over for {seconds} s, entries are used: neither control nor an activator answers{reused}"
    )
}

fn frontend(opening: &Opening) -> FrontendAddress {
    FrontendAddress {
        address: opening.target.ip(),
        port: opening.target.port(),
        protocol: opening.protocol,
    }
}

/// Whether the program reached the decision, rather than dropping the packet before it.
fn reached_decision(run: &Explained) -> bool {
    let before = [
        Verdict::DroppedDenied,
        Verdict::DroppedSpoofed,
        Verdict::DroppedNeighbor,
        Verdict::DroppedLink,
        Verdict::DroppedMartian,
        Verdict::DroppedMalformed,
    ];
    !run.counted
        .iter()
        .any(|(verdict, _)| before.contains(verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_older_than_the_quarantine_of_addresses_are_reported() {
        assert!(!stale(QUARANTINE_DEFAULT).contains("other pods"));
        assert!(stale(QUARANTINE_DEFAULT + Duration::from_secs(1)).contains("other pods"));
    }
}
