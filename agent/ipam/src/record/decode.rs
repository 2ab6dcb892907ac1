//! Decoding of records, of the present format and the previous one. Damage is distinguished from a later version's kinds.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use super::{
    BODY_LEN_MAX, CURSOR, CURSOR_IPV4, FRAME_HEADER_LEN, FREE, HAS_IPV4, HEADER, LIVE,
    QUARANTINE_IPV4, RELEASE, RESERVE, RESERVE_IPV6, Record, STATE_MASK, WIRED,
};
use crate::lease::{BootId, Lease, LeaseKey, NetnsId, State};
use crate::prefix::{NodePrefix, Suffix};

/// A whole record of an unknown kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "record {sequence} is of an unknown kind, written by a later version of the agent: run that version, or stop the node's pods and remove the journal"
)]
pub struct UnknownRecord {
    /// The record's number in the file, from 0.
    pub sequence: u64,
}

/// Decodes the frame at the start of `bytes`: the record and the frame's length in bytes. `None` if it is torn, damaged or
/// does not have the number `sequence`.
pub fn decode(bytes: &[u8], sequence: u64) -> Result<Option<(Record, usize)>, UnknownRecord> {
    let Some(mut body) = whole_body(bytes) else {
        return Ok(None);
    };
    let length = FRAME_HEADER_LEN + body.0.len();
    if body.u64() != Some(sequence) {
        return Ok(None);
    }
    let record = body.record().filter(|_| body.0.is_empty());
    let record = record.ok_or(UnknownRecord { sequence })?;
    Ok(Some((record, length)))
}

/// The body of the frame at the start, if its checksum is correct.
fn whole_body(bytes: &[u8]) -> Option<Body<'_>> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length))
        .ok()
        .filter(|l| *l <= BODY_LEN_MAX)?;
    let body = rest.get(..length)?;
    (crc32c::crc32c(body) == u32::from_le_bytes(*checksum)).then_some(Body(body))
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

    fn ipv4(&mut self) -> Option<Ipv4Addr> {
        self.take::<4>().map(Ipv4Addr::from)
    }

    fn time(&mut self) -> Option<Duration> {
        self.u64().map(Duration::from_nanos)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::from(self.take().map(u16::from_le_bytes)?);
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
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
            [RESERVE_IPV6] => {
                let suffix = self.suffix()?;
                Record::Reserve(self.lease(suffix, WIRED)?)
            }
            [RESERVE] => {
                let (suffix, [flags]) = (self.suffix()?, self.take()?);
                Record::Reserve(self.lease(suffix, flags)?)
            }
            [LIVE] => Record::Live(self.suffix()?),
            [RELEASE] => Record::Release(self.suffix()?),
            [FREE] => Record::Free(self.suffix()?, self.time()?),
            [CURSOR] => Record::Cursor(self.suffix()?),
            [QUARANTINE_IPV4] => Record::QuarantineIpv4(self.ipv4()?, self.time()?),
            [CURSOR_IPV4] => Record::CursorIpv4(self.ipv4()?),
            _ => return None,
        })
    }

    fn lease(&mut self, suffix: Suffix, flags: u8) -> Option<Arc<Lease>> {
        if flags & !(STATE_MASK | WIRED | HAS_IPV4) != 0 {
            return None;
        }
        let state = match flags & STATE_MASK {
            0 => State::Reserved,
            1 => State::Live,
            2 => State::Releasing,
            _ => return None,
        };
        let ipv4 = match flags & HAS_IPV4 {
            0 => None,
            _ => Some(self.ipv4()?),
        };
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
        Some(Arc::new(Lease {
            key,
            suffix,
            state,
            netns,
            since,
            ipv4,
            wired: flags & WIRED != 0,
        }))
    }
}
