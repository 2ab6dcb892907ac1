//! The bytes of one change in the journal: framed, numbered and checksummed, so that a torn tail is recognised.

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::lease::{BootId, Lease, LeaseKey, NetnsId, State};
use crate::prefix::{NodePrefix, Suffix};

/// Length and checksum before each body, in bytes.
pub const FRAME_HEADER_LEN: usize = 8;
/// No body is longer, in bytes: a length beyond is damage, not a record.
pub const BODY_LEN_MAX: usize = 4096;

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
    /// An address was chosen for an attachment.
    Reserve(Lease),
    /// The pod is wired.
    Live(Suffix),
    /// Unwiring has begun.
    Release(Suffix),
    /// Nothing is left of it; the address rests from then (since boot).
    Free(Suffix, Duration),
    /// Where drawing goes on; written when the file is compacted.
    Cursor(Suffix),
}

const HEADER: u8 = 1;
const RESERVE: u8 = 2;
const LIVE: u8 = 3;
const RELEASE: u8 = 4;
const FREE: u8 = 5;
const CURSOR: u8 = 6;

/// Appends the frame of `record`, the `sequence`th of its file.
pub fn encode(record: &Record, sequence: u64, out: &mut Vec<u8>) {
    let mut body = sequence.to_le_bytes().to_vec();
    match record {
        Record::Header { boot, prefix } => {
            body.push(HEADER);
            body.extend(boot.0);
            body.extend(prefix.network().octets());
            body.push(prefix.length());
        }
        Record::Reserve(lease) => {
            suffix_body(&mut body, RESERVE, lease.suffix);
            body.extend(lease.netns.dev.to_le_bytes());
            body.extend(lease.netns.ino.to_le_bytes());
            time_body(&mut body, lease.since);
            for text in [&lease.key.network, &lease.key.container, &lease.key.ifname] {
                body.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
                body.extend(text.as_bytes());
            }
        }
        Record::Live(suffix) => suffix_body(&mut body, LIVE, *suffix),
        Record::Release(suffix) => suffix_body(&mut body, RELEASE, *suffix),
        Record::Free(suffix, at) => {
            suffix_body(&mut body, FREE, *suffix);
            time_body(&mut body, *at);
        }
        Record::Cursor(suffix) => suffix_body(&mut body, CURSOR, *suffix),
    }
    out.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(crc32c::crc32c(&body).to_le_bytes());
    out.extend(body);
}

fn suffix_body(body: &mut Vec<u8>, kind: u8, suffix: Suffix) {
    body.push(kind);
    body.extend(suffix.0.to_le_bytes());
}

fn time_body(body: &mut Vec<u8>, at: Duration) {
    body.extend(
        u64::try_from(at.as_nanos())
            .unwrap_or(u64::MAX)
            .to_le_bytes(),
    );
}

/// Reads the frame at the start of `bytes`: the record and the frame's length; none if it is torn, damaged or not the
/// `sequence`th.
pub fn decode(bytes: &[u8], sequence: u64) -> Option<(Record, usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length))
        .ok()
        .filter(|l| *l <= BODY_LEN_MAX)?;
    let body = rest.get(..length)?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let mut body = Body(body);
    if body.u64()? != sequence {
        return None;
    }
    Some((body.record()?, FRAME_HEADER_LEN + length))
}

struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn suffix(&mut self) -> Option<Suffix> {
        self.take().map(u32::from_le_bytes).map(Suffix)
    }

    fn time(&mut self) -> Option<Duration> {
        self.u64().map(Duration::from_nanos)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::from(self.take().map(u16::from_le_bytes)?);
        let text = self.0.get(..length)?;
        self.0 = &self.0[length..];
        String::from_utf8(text.to_vec()).ok()
    }

    fn record(&mut self) -> Option<Record> {
        Some(match self.take::<1>()? {
            [HEADER] => Record::Header {
                boot: BootId(self.take()?),
                prefix: {
                    let network = Ipv6Addr::from(self.take::<16>()?);
                    let [length] = self.take()?;
                    NodePrefix::new(network, length).ok()?
                },
            },
            [RESERVE] => Record::Reserve(self.lease()?),
            [LIVE] => Record::Live(self.suffix()?),
            [RELEASE] => Record::Release(self.suffix()?),
            [FREE] => Record::Free(self.suffix()?, self.time()?),
            [CURSOR] => Record::Cursor(self.suffix()?),
            _ => return None,
        })
    }

    fn lease(&mut self) -> Option<Lease> {
        let suffix = self.suffix()?;
        let netns = NetnsId {
            dev: self.u64()?,
            ino: self.u64()?,
        };
        let since = self.time()?;
        let key = LeaseKey {
            network: self.text()?,
            container: self.text()?,
            ifname: self.text()?,
        };
        Some(Lease {
            key,
            suffix,
            state: State::Reserved,
            netns,
            since,
        })
    }
}
