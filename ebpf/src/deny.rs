//! The deny list: prefixes outside the cluster whose packets are dropped.
//!
//! There are two maps for it, `deny_a` and `deny_b`; [`Config::deny`](crate::config::Config::deny) names the one in force, so that a
//! list of any length is replaced by one store.

/// Prefixes of a list at most.
pub const DENIED_MAX: u32 = 1 << 20;
/// No list is in force: no packet is looked up.
pub const NO_LIST: u8 = 0;
/// The list in the map `deny_a` is in force.
pub const LIST_A: u8 = 1;
/// The list in the map `deny_b` is in force.
pub const LIST_B: u8 = 2;
/// In place of the end of an entry, CLOCK_BOOTTIME: it has none.
pub const WITHOUT_END: u64 = u64::MAX;
