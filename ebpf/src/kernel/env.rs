//! The surroundings of a packet: its hook, and the configuration.

use dormouse_ebpf::config::Config;

/// The surroundings of a packet: the node's facts in force, and its hook. Passed in two registers.
#[derive(Clone, Copy)]
pub(crate) struct Env<'a> {
    pub(crate) config: &'a Config,
    pub(crate) hook: Hook,
}

/// The hook that a packet comes by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    /// From outside, by the uplink.
    Uplink,
    /// From a pod of this node.
    Pod,
    /// Leaving by the uplink, or entering a pod.
    Egress,
}
