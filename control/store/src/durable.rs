//! Durability: the policy by prefixes, the records of the journal, and the recovery from it.

mod journal;
mod lost;
mod policy;
mod record;
mod recovery;

use std::{fs, path::PathBuf};

pub(crate) use journal::{Cause, Journal, Recorded, Written};
pub(crate) use lost::Lost;
pub use policy::{Policy, PrefixMode, PrefixModeError};
pub(crate) use record::{
    kind, put_alarms, put_auth, put_hashes, put_lost, put_members, put_number, put_pair, put_run,
};
pub(crate) use recovery::{Restored, policy_text};

/// A directory that keeps the state of a store.
#[derive(Clone, Debug)]
pub struct DataDir {
    /// Its path; created if it does not exist.
    pub path: PathBuf,
    /// The durability of writes.
    pub policy: Policy,
}

/// A number of the machine's boot, by which a crash of the process differs from one of the machine; 0
/// if the kernel has none. The kernel's boot ID is a random UUID, of which this is the first half.
pub(crate) fn boot() -> u64 {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(16)
        .collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}
