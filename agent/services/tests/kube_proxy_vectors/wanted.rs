//! Where our own decisions differ from kube-proxy's on purpose, and why.

use crate::tally::Topic::{self, Flush, Packet};

/// Ranges of which none is valid in the family leave a load balancer's address open with kube-proxy: a slip of the
/// pen, or one family forgotten, lets the world in. Ours refuses everybody and reports it.
const NO_VALID_RANGE: &str = "no source range is valid in this family";

/// A service scaled to zero keeps its UDP flows with kube-proxy, which passes over services without endpoints: they go
/// into a black hole for as long as the client sends. Ours forgets them (and so has no such flow to forget later).
const NOBODY_SERVES: &str = "a service without serving endpoints has no living flows";

/// A flow elsewhere that only shares its port's number with a NodePort is not the service's.
const NOT_OUR_ADDRESS: &str = "the flow does not go to this node";

/// The scenario, what differs in it, and the reason; sorted.
pub(crate) const DIFFERENCES: [(&str, Topic, &str); 26] = [
    ("conntrack/002-to-zero-and-back-v4", Flush, NOBODY_SERVES),
    ("conntrack/003-from-zero-v4", Flush, NOT_OUR_ADDRESS),
    ("conntrack/012-to-zero-and-back-v6", Flush, NOBODY_SERVES),
    ("conntrack/013-from-zero-v6", Flush, NOT_OUR_ADDRESS),
    (
        "loadbalancer/017-ranges-other-family-only-v4",
        Packet,
        NO_VALID_RANGE,
    ),
    (
        "loadbalancer/019-ranges-invalid-only-v4",
        Packet,
        NO_VALID_RANGE,
    ),
    (
        "loadbalancer/027-ranges-address-without-prefix-v4",
        Packet,
        NO_VALID_RANGE,
    ),
    (
        "loadbalancer/043-ranges-other-family-only-v6",
        Packet,
        NO_VALID_RANGE,
    ),
    (
        "loadbalancer/045-ranges-invalid-only-v6",
        Packet,
        NO_VALID_RANGE,
    ),
    (
        "loadbalancer/053-ranges-address-without-prefix-v6",
        Packet,
        NO_VALID_RANGE,
    ),
    (
        "loadbalancer/060-ranges-one-family-v46",
        Packet,
        NO_VALID_RANGE,
    ),
    ("random/1006", Packet, NO_VALID_RANGE),
    ("random/1012", Flush, NOBODY_SERVES),
    ("random/1018", Packet, NO_VALID_RANGE),
    ("random/1020", Flush, NOBODY_SERVES),
    ("random/1031", Flush, NOBODY_SERVES),
    ("random/1039", Packet, NO_VALID_RANGE),
    ("random/1054", Flush, NOBODY_SERVES),
    ("random/1080", Packet, NO_VALID_RANGE),
    ("random/1080", Flush, NOBODY_SERVES),
    ("random/1084", Flush, NOBODY_SERVES),
    ("random/1086", Packet, NO_VALID_RANGE),
    ("random/1105", Flush, NOBODY_SERVES),
    ("random/1109", Packet, NO_VALID_RANGE),
    ("random/1117", Flush, NOBODY_SERVES),
    ("random/1118", Flush, NOBODY_SERVES),
];
