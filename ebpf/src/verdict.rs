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
            pub const fn is_drop(self) -> bool {
                matches!(
                    self,
                    Self::DroppedHops | Self::DroppedNoPort | Self::DroppedNoActivator | Self::DroppedRewrite
                )
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
