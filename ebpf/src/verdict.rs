//! Verdicts on packets and connections: one counter each, with its name in metrics.

macro_rules! verdicts {
    ($($name:ident = $number:literal $text:literal $doc:literal),* $(,)?) => {
        /// A verdict on a packet or connection, or another counted event: an index of the map `stats`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Verdict { $(#[doc = $doc] $name = $number),* }

        impl Verdict {
            /// All, by number.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The packet was dropped.
            #[cfg(not(target_arch = "bpf"))]
            pub fn is_drop(self) -> bool {
                self.name().starts_with("dropped")
            }

            /// The packet was rejected, or its connection reset.
            #[cfg(not(target_arch = "bpf"))]
            pub fn is_refusal(self) -> bool {
                self.name().starts_with("rejected") || matches!(self, Self::Reset)
            }

            /// The name in metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

verdicts! {
    Advertised = 0 "advertised" "A Neighbor Solicitation for a pod of this node was answered.",
    Solicited = 1 "solicited" "A Neighbor Solicitation inside the node prefix was for no pod.",
    ServedLocal = 2 "served_local" "A new flow from outside was forwarded to a pod of this node.",
    ServedRemote = 3 "served_remote" "A new flow from outside was forwarded to a pod of another node.",
    Proxied = 4 "proxied" "A new flow was forwarded to an activator: the app's entry is in proxy mode, or absent.",
    LeaseOver = 5 "lease_over" "A new flow was forwarded to an activator: the node lease is over.",
    Shared = 6 "shared" "A new flow was forwarded to an activator: its share of an app in serve mode.",
    NoBackend = 7 "no_backend" "A new flow was forwarded to an activator: no backend could be used.",
    OtherPort = 8 "other_port" "A new flow to a port that the app does not have was forwarded to an activator, which refuses it.",
    SocketServed = 9 "socket_served" "A socket was connected directly to a backend.",
    DroppedHops = 10 "dropped_hops" "Dropped: the hop limit is used up.",
    DroppedNoPort = 11 "dropped_no_port" "Dropped: no NAT port was free for a masqueraded connection.",
    DroppedNoActivator = 12 "dropped_no_activator" "Dropped: no activator is known.",
    DroppedRewrite = 13 "dropped_rewrite" "Dropped: a kernel helper failed to change the packet.",
    EventLost = 14 "event_lost" "The ring buffer of events was full; the next packet raises the event again.",
    Woke = 15 "woke" "The first packet to a sleeping app raised a wake event.",
    Missed = 16 "missed" "The first packet to a VIP without an entry raised a miss event.",
    Rejected = 17 "rejected" "Rejected: the Service has no usable endpoint.",
    RejectedPort = 18 "rejected_port" "Rejected: the cluster IP has no such port.",
    DroppedNotLocal = 19 "dropped_not_local" "Dropped: traffic policy Local, and no endpoint on this node.",
    DroppedRange = 20 "dropped_range" "Dropped: the source is outside loadBalancerSourceRanges.",
    DroppedUnallocated = 21 "dropped_unallocated" "Dropped: no Service has this address of the service range.",
    DroppedMalformed = 22 "dropped_malformed" "Dropped: truncated, or with contradicting lengths or headers.",
    DroppedMartian = 23 "dropped_martian" "Dropped: a martian address, which never crosses a network.",
    DroppedSpoofed = 24 "dropped_spoofed" "Dropped: the source address is not the sender's own.",
    DroppedFragment = 25 "dropped_fragment" "Dropped: a fragment to a VIP whose first fragment was not seen.",
    Reset = 26 "reset" "A connection to a backend that is gone was reset.",
    Reselected = 27 "reselected" "A UDP flow to a backend that is gone was decided again.",
    ErrorTranslated = 28 "error_translated" "An ICMP error was translated for the sender of the packet that it quotes.",
    SocketStale = 29 "socket_stale" "A packet of a connected socket whose backend is gone was redirected or rejected.",
    TableFull = 30 "table_full" "A flow could not be inserted: the flow table is full.",
    ServiceServed = 31 "service_served" "A new flow to a Service was forwarded to a backend.",
    NatPortReused = 32 "nat_port_reused" "A masqueraded connection got the NAT port of one that had just ended: no other port of the backend was free.",
    RejectedProtocol = 33 "rejected_protocol" "Rejected: a packet to a VIP that is neither TCP, UDP nor SCTP.",
    DroppedProtocol = 34 "dropped_protocol" "Dropped: a packet to a VIP that is neither TCP, UDP nor SCTP, and may not be answered.",
    DroppedNeighbor = 35 "dropped_neighbor" "Dropped: ARP or neighbour discovery of a pod that does not ask for its gateway, or one packet of a pod too many to hosts on the uplink's link that have not answered.",
    DroppedLink = 36 "dropped_link" "Dropped: a pod's message to its link, for which the node has no use: a multicast report, a Router Solicitation.",
    GatewayAnswered = 37 "gateway_answered" "A pod's ARP request or Neighbor Solicitation for its gateway was answered.",
    DroppedReturned = 38 "dropped_returned" "Dropped: a packet from the uplink to a Service's external IP or load balancer address, at a port or of a protocol that the Service does not have; the router would send it back.",
    Established = 39 "established" "A flow was established: its client has confirmed it, or its backend has answered it (UDP).",
    DroppedWakeLimit = 40 "dropped_wake_limit" "Dropped: a packet that would have woken an app, of a source that has used up its wakes.",
    DroppedDenied = 41 "dropped_denied" "Dropped: the source is on the deny list.",
    XdpForwarded = 42 "xdp_forwarded" "A packet of a known flow was sent on to another node by the uplink's XDP program.",
}

/// How many verdicts there are.
#[expect(clippy::cast_possible_truncation, reason = "a short list")]
pub const VERDICTS_LEN: u32 = Verdict::ALL.len() as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_numbered_by_their_place_and_named_once() {
        let names: std::collections::BTreeSet<_> =
            Verdict::ALL.iter().map(|verdict| verdict.name()).collect();
        assert_eq!(names.len(), Verdict::ALL.len());
        assert!(
            Verdict::ALL
                .iter()
                .all(|verdict| verdict.is_drop() == verdict.name().starts_with("dropped_")),
            "metrics cut the name of a drop"
        );
        assert!(
            Verdict::ALL
                .iter()
                .enumerate()
                .all(|(place, &verdict)| verdict as usize == place)
        );
    }
}
