//! Why packets are dropped and refused, for people: a code each, what it means, and what to do next.

use std::net::IpAddr;

use serde::Serialize;

use dormouse_agent_datapath::Verdict;

/// The codes of verdicts begin here.
const FIRST_CODE: u32 = 6_000;

/// What a verdict tells people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What is done: `dropped`, `rejected`, `reset`.
    pub kind: &'static str,
    /// Its name, as in metrics.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What to do next.
    pub next: &'static str,
}

impl Reason {
    /// What to do next, with names in their places: the Service is `namespace/name:port`.
    pub fn next_for(&self, service: Option<&str>, source: IpAddr) -> String {
        let next = self.next.replace("SOURCE", &source.to_string());
        let parts = service.and_then(|title| title.rsplit_once(':')?.0.split_once('/'));
        match parts {
            Some((namespace, name)) => next.replace("NAMESPACE", namespace).replace("NAME", name),
            None => next,
        }
    }
}

/// The code of a verdict, as it is printed.
pub fn code(verdict: Verdict) -> String {
    format!("DM{}", FIRST_CODE + verdict as u32)
}

/// The verdict of a code or of a name.
pub fn verdict(text: &str) -> Option<Verdict> {
    let mut all = Verdict::ALL.iter().copied();
    all.find(|one| code(*one).eq_ignore_ascii_case(text) || one.name() == text)
}

/// What a verdict tells people, if it says that a packet did not go its way.
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

/// What Services say.
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
            "send to a node that has one (the health port tells), or set externalTrafficPolicy: Cluster",
        ),
        Verdict::DroppedRange => (
            "the source is outside of the load balancer's source ranges",
            "add its range to spec.loadBalancerSourceRanges",
        ),
        Verdict::DroppedUnallocated => (
            "no service has this address of the service range",
            "the Service was deleted, or the client has an old address: look its name up again",
        ),
        Verdict::Reset => (
            "the connection's backend is gone, so it was reset",
            "nothing: the client connects again; if often, look why pods end",
        ),
        Verdict::DroppedNoActivator => (
            "no activator is known to stand in for an app",
            "dormouse-agent get services: is the fleet stream up (metric dormouse_fleet_connected)?",
        ),
        _ => return None,
    })
}

/// What packets and tables say.
fn packets(verdict: Verdict) -> Option<(&'static str, &'static str)> {
    Some(match verdict {
        Verdict::DroppedHops => (
            "the hop limit ran out",
            "look for a routing loop: traceroute from the client",
        ),
        Verdict::DroppedNoPort => (
            "no port of the node's own was free for a hidden connection",
            "dormouse-agent flows --kind hidden: too many connections to one place, or no node address of the family",
        ),
        Verdict::DroppedRewrite => (
            "the kernel refused to change the packet",
            "dmesg; report it with the packet's kind and the driver (ethtool -i)",
        ),
        Verdict::DroppedMalformed => (
            "the packet is truncated, or its headers contradict each other",
            "capture it: tcpdump -ni UPLINK -vv; look at the sender",
        ),
        Verdict::DroppedMartian => (
            "its addresses never cross a network",
            "capture it: tcpdump -ni UPLINK -e; look at the sender",
        ),
        Verdict::DroppedSpoofed => (
            "the sender used an address that is not its own",
            "dormouse-agent explain address SOURCE: is the pod's address known here?",
        ),
        Verdict::DroppedFragment => (
            "a fragment came without the first of its packet",
            "lower the sender's MTU, or look for reordering on the way",
        ),
        Verdict::TableFull => (
            "the flow could not be remembered: its table is full",
            "dormouse-agent flows --limit 0: how many flows there are, and to whom",
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_stops_a_packet_has_a_meaning_and_a_next_step() {
        for verdict in Verdict::ALL.iter().copied() {
            let stops = verdict.is_drop() || verdict.is_refusal();
            let told = reason(verdict);
            assert!(!stops || told.is_some(), "{} says nothing", verdict.name());
            assert_eq!(super::verdict(&code(verdict)), Some(verdict));
            assert_eq!(super::verdict(verdict.name()), Some(verdict));
        }
    }

    #[test]
    fn codes_stay_what_they_are() {
        assert_eq!(code(Verdict::DroppedRange), "DM6020");
        assert_eq!(reason(Verdict::DroppedRange).unwrap().name, "range");
        assert_eq!(reason(Verdict::Proxied), None);
    }

    #[test]
    fn the_next_step_can_be_typed_as_it_stands() {
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
