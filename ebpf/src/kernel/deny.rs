//! The deny list: see [`dormouse_ebpf::deny`].

use aya_ebpf::maps::lpm_trie::Key;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::deny::{LIST_A, NO_LIST};

use super::words::Words;
use super::{clock, tables};

/// Whether a source outside is denied. Without a list it costs one comparison.
#[inline(always)]
pub(crate) fn is_denied(config: &Config, source: &[u8; 16]) -> bool {
    config.deny != NO_LIST && is_listed(source, config.deny.into())
}

#[inline(never)]
fn is_listed(source: &[u8; 16], list: u32) -> bool {
    let key = Words(Key::new(128, *source));
    let until_ns = if list == LIST_A.into() {
        tables::DENY_A.get(&key.0)
    } else {
        tables::DENY_B.get(&key.0)
    };
    until_ns.is_some_and(|until_ns| clock::now_ns() < *until_ns)
}
