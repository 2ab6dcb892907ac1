//! The flag of the durability of writes, for each command that opens a data directory.

use clap::Args;
use dormouse_store::durable::{Policy, PrefixMode};

/// The durability of writes.
#[derive(Args, Clone, Debug, Default)]
pub struct DurabilityFlags {
    /// Durability of the writes to a prefix of keys: none, buffered, os or fsync. The empty prefix is
    /// all other keys. May be repeated; the default is os, none for Kubernetes' leases and events, and fsync for
    /// Dormouse's tokens and revoked nodes
    #[arg(
        long,
        value_name = "PREFIX=MODE",
        env = "DORMOUSE_DURABILITY",
        value_delimiter = ','
    )]
    durability: Vec<PrefixMode>,
}

impl DurabilityFlags {
    /// The policy: the default one with the given prefixes.
    pub fn policy(&self) -> Policy {
        let mut policy = Policy::default();
        for PrefixMode(prefix, mode) in &self.durability {
            policy.set((prefix.clone(), *mode));
        }
        policy
    }

    /// Whether a prefix is given.
    pub fn is_given(&self) -> bool {
        !self.durability.is_empty()
    }
}
