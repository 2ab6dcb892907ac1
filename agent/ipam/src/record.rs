//! Journal records: one change each, framed, numbered and checksummed, so that a torn tail is detected.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::lease::{BootId, KEY_LEN_MAX, Lease, State};
use crate::prefix::{NodePrefix, Suffix};

mod decode;

pub use decode::{UnknownRecord, decode};

/// Size of length and checksum before each body, in bytes.
pub const FRAME_HEADER_LEN: usize = 8;
/// Longest body, in bytes; a larger length is damage.
pub const BODY_LEN_MAX: usize = 4096;

// A lease without its names takes fewer than 64 bytes.
const _: () = assert!(KEY_LEN_MAX + 64 < BODY_LEN_MAX);

/// One change of the allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first record of each file.
    Header {
        /// The boot in which the file was created.
        boot: BootId,
        /// The node's prefix.
        prefix: NodePrefix,
    },
    /// A lease: a new one, or in a compacted file one in any state.
    Reserve(Arc<Lease>),
    /// The lease is live.
    Live(Suffix),
    /// The lease is being released.
    Release(Suffix),
    /// The lease has ended; its addresses are in quarantine from then (since boot).
    Free(Suffix, Duration),
    /// The next suffix of its lane; written by compaction.
    Cursor(Suffix),
    /// An IPv4 address is in quarantine since then (since boot); written by compaction.
    QuarantineIpv4(Ipv4Addr, Duration),
    /// The next IPv4 address; written by compaction.
    CursorIpv4(Ipv4Addr),
}

// Record kinds. They version the format: an unknown kind was written by a later version. Kind 2 is a lease without IPv4,
// no longer written but still read.
const HEADER: u8 = 1;
const RESERVE_IPV6: u8 = 2;
const LIVE: u8 = 3;
const RELEASE: u8 = 4;
const FREE: u8 = 5;
const CURSOR: u8 = 6;
const RESERVE: u8 = 7;
const QUARANTINE_IPV4: u8 = 8;
const CURSOR_IPV4: u8 = 9;

// A lease's flags.
const STATE_MASK: u8 = 0b0011;
const WIRED: u8 = 0b0100;
const HAS_IPV4: u8 = 0b1000;

/// Appends the frame of `record`, the `sequence`th of its file.
pub fn encode(record: &Record, sequence: u64, out: &mut Vec<u8>) {
    let frame = out.len();
    out.extend([0; FRAME_HEADER_LEN]);
    out.extend(sequence.to_le_bytes());
    match record {
        Record::Header { boot, prefix } => {
            out.push(HEADER);
            out.extend(boot.0);
            out.extend(prefix.network().octets());
            out.push(prefix.length());
        }
        Record::Reserve(lease) => encode_lease(lease, out),
        Record::Live(suffix) => encode_suffix(LIVE, *suffix, out),
        Record::Release(suffix) => encode_suffix(RELEASE, *suffix, out),
        Record::Free(suffix, at) => {
            encode_suffix(FREE, *suffix, out);
            encode_time(*at, out);
        }
        Record::Cursor(suffix) => encode_suffix(CURSOR, *suffix, out),
        Record::QuarantineIpv4(address, at) => {
            out.push(QUARANTINE_IPV4);
            out.extend(address.octets());
            encode_time(*at, out);
        }
        Record::CursorIpv4(address) => {
            out.push(CURSOR_IPV4);
            out.extend(address.octets());
        }
    }
    let (header, body) = out[frame..].split_at_mut(FRAME_HEADER_LEN);
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
}

fn encode_lease(lease: &Lease, out: &mut Vec<u8>) {
    let state = match lease.state {
        State::Reserved => 0,
        State::Live => 1,
        State::Releasing => 2,
    };
    let wired = if lease.wired { WIRED } else { 0 };
    let has_ipv4 = if lease.ipv4.is_some() { HAS_IPV4 } else { 0 };
    encode_suffix(RESERVE, lease.suffix, out);
    out.push(state | wired | has_ipv4);
    out.extend(lease.ipv4.iter().flat_map(Ipv4Addr::octets));
    out.extend(lease.netns.dev.to_le_bytes());
    out.extend(lease.netns.ino.to_le_bytes());
    encode_time(lease.since, out);
    for text in [&lease.key.network, &lease.key.container, &lease.key.ifname] {
        out.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend(text.as_bytes());
    }
}

fn encode_suffix(kind: u8, suffix: Suffix, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend(suffix.0.to_le_bytes());
}

fn encode_time(at: Duration, out: &mut Vec<u8>) {
    out.extend(
        u64::try_from(at.as_nanos())
            .unwrap_or(u64::MAX)
            .to_le_bytes(),
    );
}
