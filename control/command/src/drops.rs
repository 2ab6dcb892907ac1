//! Why nodes drop, reject or reset packets: each reason with a code, a meaning and a next step.

use std::net::IpAddr;

use serde::Serialize;

/// A drop reason and its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The code: DM6000 and the number of the data path's verdict.
    pub code: &'static str,
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
    /// The reason with this code; upper and lower case are the same.
    pub fn of_code(code: &str) -> Option<&'static Self> {
        REASONS
            .iter()
            .find(|reason| reason.code.eq_ignore_ascii_case(code))
    }

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

/// All reasons, by code.
pub const REASONS: &[Reason] = &[
    Reason {
        code: "DM6010",
        kind: "dropped",
        name: "hops",
        meaning: "the hop limit ran out",
        next: "look for a routing loop: traceroute from the client",
    },
    Reason {
        code: "DM6011",
        kind: "dropped",
        name: "no_port",
        meaning: "no NAT port of the node was free for a masqueraded connection",
        next: "dormouse-agent flows --kind masqueraded: too many connections to one destination, or the node has no address of the family",
    },
    Reason {
        code: "DM6012",
        kind: "dropped",
        name: "no_activator",
        meaning: "an app needs an activator, and none is known",
        next: "check that the fleet stream is up: metric dormouse_fleet_connected",
    },
    Reason {
        code: "DM6013",
        kind: "dropped",
        name: "rewrite",
        meaning: "the kernel refused to rewrite the packet",
        next: "read dmesg; report it with the packet's protocol and the driver (ethtool -i UPLINK)",
    },
    Reason {
        code: "DM6017",
        kind: "rejected",
        name: "rejected",
        meaning: "the service has no endpoint that could serve",
        next: "kubectl -n NAMESPACE get endpointslices -l kubernetes.io/service-name=NAME: make a pod ready",
    },
    Reason {
        code: "DM6018",
        kind: "rejected",
        name: "rejected_port",
        meaning: "the cluster IP has no such port",
        next: "dormouse-agent get services -A: use a port of the Service, or add it there",
    },
    Reason {
        code: "DM6019",
        kind: "dropped",
        name: "not_local",
        meaning: "policy Local, and no endpoint on this node",
        next: "send to a node that has one (the Service's health check node port reports it), or set externalTrafficPolicy: Cluster",
    },
    Reason {
        code: "DM6020",
        kind: "dropped",
        name: "range",
        meaning: "the source is not in the load balancer's source ranges",
        next: "add its range to spec.loadBalancerSourceRanges",
    },
    Reason {
        code: "DM6021",
        kind: "dropped",
        name: "unallocated",
        meaning: "the address is in a service range, but no service has it",
        next: "the Service was deleted, or the client uses an old address: resolve its name again",
    },
    Reason {
        code: "DM6022",
        kind: "dropped",
        name: "malformed",
        meaning: "the packet is truncated, or its headers contradict each other",
        next: "capture it: tcpdump -ni UPLINK -vv; check the sender",
    },
    Reason {
        code: "DM6023",
        kind: "dropped",
        name: "martian",
        meaning: "the source or destination address must not appear on a network (martian)",
        next: "capture it: tcpdump -ni UPLINK -e; check the sender",
    },
    Reason {
        code: "DM6024",
        kind: "dropped",
        name: "spoofed",
        meaning: "the pod sent from an address that is not assigned to it",
        next: "dormouse-agent explain address SOURCE: check that the pod's address is known",
    },
    Reason {
        code: "DM6025",
        kind: "dropped",
        name: "fragment",
        meaning: "a fragment arrived before the first fragment of its packet",
        next: "lower the sender's MTU, or check for reordering in the network",
    },
    Reason {
        code: "DM6026",
        kind: "reset",
        name: "reset",
        meaning: "the connection's backend is gone, so it was reset",
        next: "no action: the client reconnects; if it is frequent, check why pods terminate",
    },
    Reason {
        code: "DM6030",
        kind: "dropped",
        name: "table_full",
        meaning: "no flow could be created: the flow table is full",
        next: "dormouse-agent flows --limit 0: the number of flows; raise --flows-max",
    },
    Reason {
        code: "DM6033",
        kind: "rejected",
        name: "rejected_protocol",
        meaning: "a VIP takes TCP, UDP and SCTP only, no ping",
        next: "connect to a port of the Service or app instead",
    },
    Reason {
        code: "DM6034",
        kind: "dropped",
        name: "protocol",
        meaning: "a VIP takes TCP, UDP and SCTP only, no ping",
        next: "connect to a port of the Service or app instead",
    },
    Reason {
        code: "DM6035",
        kind: "dropped",
        name: "neighbor",
        meaning: "ARP or neighbour discovery of a pod that does not ask for its gateway, the only neighbour that it has",
        next: "no action for a few: a guest kernel checks its addresses; many are forged by a process with CAP_NET_RAW: tcpdump -ni LINK 'arp or icmp6', for the links of get pods",
    },
    Reason {
        code: "DM6036",
        kind: "dropped",
        name: "link",
        meaning: "a pod's message to its link, for which the node has no use: a multicast report, a Router Solicitation, no IP",
        next: "no action: each pod's kernel sends some when its link comes up",
    },
    Reason {
        code: "DM6038",
        kind: "dropped",
        name: "returned",
        meaning: "the router sent it here for an external address of a Service, which has no such port or protocol",
        next: "connect to a port of the Service instead; dormouse-agent get services lists them",
    },
    Reason {
        code: "DM6040",
        kind: "dropped",
        name: "wake_limit",
        meaning: "it would have woken an app, or asked control for an unknown VIP, and its source has used up its wakes",
        next: "no action for a scan; a proxy before many apps: --trusted-proxy SOURCE of dormouse-agent run, or a higher --wake-burst",
    },
    Reason {
        code: "DM6041",
        kind: "dropped",
        name: "denied",
        meaning: "the source is on the node's deny list",
        next: "dormouse-agent deny list shows the entries, with their origin; dormouse-agent deny remove SOURCE, or edit --deny-file",
    },
];
