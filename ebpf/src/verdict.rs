//! What can become of a packet: one counter each, and the name that people read.

macro_rules! verdicts {
    ($($name:ident = $number:literal $text:literal $doc:literal),* $(,)?) => {
        /// What became of a packet or connection.
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

            /// The packet was refused, or its connection reset.
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
    Advertised = 0 "advertised" "A solicitation for a pod was answered.",
    Solicited = 1 "solicited" "A solicitation inside the node prefix was for no pod.",
    ServedLocal = 2 "served_local" "A new flow from outside goes to a pod of this node.",
    ServedRemote = 3 "served_remote" "A new flow from outside goes to a pod of another node.",
    Proxied = 4 "proxied" "A new flow goes to an activator, as its entry says.",
    LeaseOver = 5 "lease_over" "A new flow goes to an activator because the node lease is over.",
    Shared = 6 "shared" "A new flow goes to an activator as its share.",
    NoBackend = 7 "no_backend" "A new flow goes to an activator because no backend could be used.",
    OtherPort = 8 "other_port" "A new flow to a port that the VIP does not have goes to an activator, which refuses it.",
    SocketServed = 9 "socket_served" "A pod's socket was connected straight to a backend.",
    DroppedHops = 10 "dropped_hops" "Dropped: its hop limit ran out.",
    DroppedNoPort = 11 "dropped_no_port" "Dropped: no source port towards the activator was free.",
    DroppedNoActivator = 12 "dropped_no_activator" "Dropped: no activator is known.",
    DroppedRewrite = 13 "dropped_rewrite" "Dropped: the kernel refused to change the packet.",
    EventLost = 14 "event_lost" "The ring of events was full; the next packet tries again.",
    Woke = 15 "woke" "The first packet to a sleeping VIP.",
    Missed = 16 "missed" "The first packet to a VIP without an entry.",
    Rejected = 17 "rejected" "Refused: the service has no endpoint that could serve.",
    RejectedPort = 18 "rejected_port" "Refused: the cluster IP has no such port.",
    DroppedNotLocal = 19 "dropped_not_local" "Dropped: policy Local, and no endpoint on this node.",
    DroppedRange = 20 "dropped_range" "Dropped: outside of the load balancer's source ranges.",
    DroppedUnallocated = 21 "dropped_unallocated" "Dropped: no service has this address of the service range.",
    DroppedMalformed = 22 "dropped_malformed" "Dropped: truncated, or its lengths or headers contradict each other.",
    DroppedMartian = 23 "dropped_martian" "Dropped: its addresses never cross a network.",
    DroppedSpoofed = 24 "dropped_spoofed" "Dropped: a pod used an address that is not its own.",
    DroppedFragment = 25 "dropped_fragment" "Dropped: a fragment of a packet to a VIP whose first fragment was not seen.",
    Reset = 26 "reset" "A connection to a backend that is gone was reset.",
    Repicked = 27 "repicked" "A flow to a backend that is gone goes to another one.",
    ErrorTranslated = 28 "error_translated" "An ICMP error was led to whom it concerns.",
    SocketStale = 29 "socket_stale" "A socket's backend is gone: the agent was told to end its connection.",
    TableFull = 30 "table_full" "A flow could not be remembered: its table is full.",
    ServiceServed = 31 "service_served" "A new flow to a Service goes to a backend.",
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
