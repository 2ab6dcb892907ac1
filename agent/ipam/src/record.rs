//! The bytes of one change in the journal: framed, numbered and checksummed, so that a torn tail is recognised.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::lease::{BootId, KEY_LEN_MAX, Lease, State};
use crate::prefix::{NodePrefix, Suffix};

mod decode;

pub use decode::{UnknownRecord, decode};

/// Length and checksum before each body, in bytes.
pub const FRAME_HEADER_LEN: usize = 8;
/// No body is longer, in bytes: a length beyond is damage, not a record.
pub const BODY_LEN_MAX: usize = 4096;

// Beside its names a lease has fewer than 64 bytes.
const _: () = assert!(KEY_LEN_MAX + 64 < BODY_LEN_MAX);

/// One change of the allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// First of each file: which boot and which prefix the rest is about.
    Header {
        /// The boot in which the file was begun.
        boot: BootId,
        /// The node's prefix.
        prefix: NodePrefix,
    },
    /// Addresses were chosen for an attachment, or a compacted file says that it has them.
    Reserve(Arc<Lease>),
    /// The pod is wired.
    Live(Suffix),
    /// Unwiring has begun.
    Release(Suffix),
    /// Nothing is left of it; its addresses rest from then (since boot).
    Free(Suffix, Duration),
    /// Where drawing goes on in the suffix's lane; written when the file is compacted.
    Cursor(Suffix),
    /// An IPv4 address rests since then (since boot); written when the file is compacted.
    RestIpv4(Ipv4Addr, Duration),
    /// Where drawing IPv4 addresses goes on; written when the file is compacted.
    CursorIpv4(Ipv4Addr),
}

// The kinds are the format's version: one that is not known here was written by a later version. 2 is a lease as written
// until IPv4 came; it is still read.
const HEADER: u8 = 1;
const RESERVE_IPV6: u8 = 2;
const LIVE: u8 = 3;
const RELEASE: u8 = 4;
const FREE: u8 = 5;
const CURSOR: u8 = 6;
const RESERVE: u8 = 7;
const REST_IPV4: u8 = 8;
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
        Record::RestIpv4(address, at) => {
            out.push(REST_IPV4);
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
