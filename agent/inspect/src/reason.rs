//! Drop reasons: each with a code, a meaning and a next step.

use std::net::IpAddr;

use serde::Serialize;

use dormouse_agent_datapath::Verdict;

/// The code of verdict 0; codes are stable.
const FIRST_CODE: u32 = 6_000;

/// A drop reason and its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The action: `dropped`, `rejected`, `reset`.
    pub kind: &'static str,
    /// The name, as the label of the metric.
    pub name: &'static str,
    /// The meaning.
    pub meaning: &'static str,
    /// The next step, with the placeholders NAMESPACE, NAME and SOURCE.
    pub next: &'static str,
}

impl Reason {
    /// The next step with its placeholders filled in; the Service is `namespace/name:port`.
    pub fn next_for(&self, service: Option<&str>, source: IpAddr) -> String {
        let next = self.next.replace("SOURCE", &source.to_string());
        let parts = service.and_then(|title| title.rsplit_once(':')?.0.split_once('/'));
        match parts {
            Some((namespace, name)) => next.replace("NAMESPACE", namespace).replace("NAME", name),
            None => next,
        }
    }
}

/// The code of a verdict, as `DM6020`.
pub fn code(verdict: Verdict) -> String {
    format!("DM{}", FIRST_CODE + verdict as u32)
}

/// The verdict with this code or name.
pub fn verdict(text: &str) -> Option<Verdict> {
    let mut all = Verdict::ALL.iter().copied();
    all.find(|one| code(*one).eq_ignore_ascii_case(text) || one.name() == text)
}

/// The reason, for a verdict that drops, refuses or resets.
pub fn reason(verdict: Verdict) -> Option<Reason> {
    let kind = match verdict {
        Verdict::Reset => "reset",
        other if other.is_refusal() => "rejected",
        other if other.is_drop() => "dropped",
        Verdict::TableFull => "dropped",
        _ => return None,
    };
    let (meaning, next) = texts(verdict)?;
    let name = verdict.name();
    let name = name.strip_prefix("dropped_").unwrap_or(name);
    Some(Reason {
        kind,
        name,
        meaning,
        next,
    })
}

fn texts(verdict: Verdict) -> Option<(&'static str, &'static str)> {
    services(verdict).or_else(|| packets(verdict))
}

/// The texts of verdicts about Services: meaning, next step.
fn services(verdict: Verdict) -> Option<(&'static str, &'static str)> {
    Some(match verdict {
        Verdict::Rejected => (
            "the service has no endpoint that could serve",
            "kubectl -n NAMESPACE get endpointslices -l kubernetes.io/service-name=NAME: make a pod ready",
        ),
        Verdict::RejectedPort => (
            "the cluster IP has no such port",
            "dormouse-agent get services -A: use a port of the Service, or add it there",
        ),
        Verdict::DroppedNotLocal => (
            "policy Local, and no endpoint on this node",
            "send to a node that has one (the Service's health check node port reports it), or set externalTrafficPolicy: Cluster",
        ),
        Verdict::DroppedRange => (
            "the source is not in the load balancer's source ranges",
            "add its range to spec.loadBalancerSourceRanges",
        ),
        Verdict::DroppedUnallocated => (
            "the address is in a service range, but no service has it",
            "the Service was deleted, or the client uses an old address: resolve its name again",
        ),
        Verdict::Reset => (
            "the connection's backend is gone, so it was reset",
            "no action: the client reconnects; if it is frequent, check why pods terminate",
        ),
        Verdict::DroppedNoActivator => (
            "an app needs an activator, and none is known",
            "check that the fleet stream is up: metric dormouse_fleet_connected",
        ),
        _ => return None,
    })
}

/// The texts of verdicts about packets and tables: meaning, next step.
fn packets(verdict: Verdict) -> Option<(&'static str, &'static str)> {
    Some(match verdict {
        Verdict::DroppedHops => (
            "the hop limit ran out",
            "look for a routing loop: traceroute from the client",
        ),
        Verdict::DroppedNoPort => (
            "no NAT port of the node was free for a masqueraded connection",
            "dormouse-agent flows --kind masqueraded: too many connections to one destination, or the node has no address of the family",
        ),
        Verdict::DroppedRewrite => (
            "the kernel refused to rewrite the packet",
            "read dmesg; report it with the packet's protocol and the driver (ethtool -i UPLINK)",
        ),
        Verdict::DroppedMalformed => (
            "the packet is truncated, or its headers contradict each other",
            "capture it: tcpdump -ni UPLINK -vv; check the sender",
        ),
        Verdict::DroppedMartian => (
            "the source or destination address must not appear on a network (martian)",
            "capture it: tcpdump -ni UPLINK -e; check the sender",
        ),
        Verdict::DroppedSpoofed => (
            "the pod sent from an address that is not assigned to it",
            "dormouse-agent explain address SOURCE: check that the pod's address is known",
        ),
        Verdict::DroppedNeighbor => (
            "ARP or neighbour discovery of a pod that does not ask for its gateway, the only neighbour that it has",
            "no action for a few: a guest kernel checks its addresses; many are forged by a process with CAP_NET_RAW: tcpdump -ni LINK 'arp or icmp6', for the links of get pods",
        ),
        Verdict::DroppedLink => (
            "a pod's message to its link, for which the node has no use: a multicast report, a Router Solicitation, no IP",
            "no action: each pod's kernel sends some when its link comes up",
        ),
        Verdict::RejectedProtocol | Verdict::DroppedProtocol => (
            "a VIP takes TCP, UDP and SCTP only, no ping",
            "connect to a port of the Service or app instead",
        ),
        Verdict::DroppedFragment => (
            "a fragment arrived before the first fragment of its packet",
            "lower the sender's MTU, or check for reordering in the network",
        ),
        Verdict::TableFull => (
            "no flow could be created: the flow table is full",
            "dormouse-agent flows --limit 0: the number of flows; raise --flows-max",
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_that_stops_a_packet_has_a_meaning_and_a_next_step() {
        for verdict in Verdict::ALL.iter().copied() {
            let stops = verdict.is_drop() || verdict.is_refusal();
            let reason = reason(verdict);
            assert!(!stops || reason.is_some(), "{} has no text", verdict.name());
            assert_eq!(super::verdict(&code(verdict)), Some(verdict));
            assert_eq!(super::verdict(verdict.name()), Some(verdict));
        }
    }

    #[test]
    fn codes_are_stable() {
        assert_eq!(code(Verdict::DroppedRange), "DM6020");
        assert_eq!(reason(Verdict::DroppedRange).unwrap().name, "range");
        assert_eq!(reason(Verdict::Proxied), None);
    }

    #[test]
    fn the_next_step_is_a_complete_command() {
        let source = "10.0.0.9".parse().unwrap();
        let next = reason(Verdict::Rejected)
            .unwrap()
            .next_for(Some("shop/web:http"), source);
        let wanted = "kubectl -n shop get endpointslices -l kubernetes.io/service-name=web: make a pod ready";
        assert_eq!(next, wanted);
        let spoofed = reason(Verdict::DroppedSpoofed).unwrap();
        assert!(spoofed.next_for(None, source).contains("address 10.0.0.9"));
    }
}
