//! Connections of which both entries were found a moment ago. Most packets need their own direction's entry only; looking the other one up, too,
//! marks it as used, so that a full table does not evict it alone, and shows whether it is there. Once in a while of each connection is enough for both.

use crate::flow::Flow;
use crate::neighbors::words;
use crate::pick::mix;

/// Connections that each processor remembers; a power of two.
pub const FOUND_MAX: u32 = 1 << FOUND_BITS;
const FOUND_BITS: u32 = 12;
/// A while has 2^WHILE_BITS of the kernel's ticks: 16 to 160 ms.
pub const WHILE_BITS: u32 = 4;
/// Bits of a mark that number the while.
const NUMBER_BITS: u32 = 24;

/// The entry of a connection in what is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its place, below [`FOUND_MAX`].
    pub place: u32,
    /// What is there if both entries were found in this while. Another connection with the same mark spares this one a lookup.
    pub mark: u64,
}

impl Found {
    /// That of the connection with a direction's entry, at this tick.
    #[inline(always)]
    pub const fn of(flow: &Flow, tick: u64) -> Self {
        let ports = (flow.source_port as u64) << 16 | flow.target_port as u64;
        let ([a, b], [c, d]) = (words(&flow.source), words(&flow.target));
        let ends = a.rotate_left(8) ^ b ^ c.rotate_left(24) ^ d.rotate_left(40);
        let mixed = mix(ends ^ ports.rotate_left(16));
        Self {
            place: (mixed >> (u64::BITS - FOUND_BITS)) as u32,
            mark: mixed << NUMBER_BITS | (tick >> WHILE_BITS) & ((1 << NUMBER_BITS) - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn flow(client: u8, source_port: u16) -> Flow {
        let mut flow = Flow {
            source_port,
            target_port: 80,
            ..Flow::default()
        };
        (flow.source[15], flow.target[15]) = (client, 9);
        flow
    }

    #[test]
    fn a_mark_is_of_one_connection_direction_and_while() {
        let mark = |flow: &Flow, tick| Found::of(flow, tick).mark;
        let first = flow(1, 40_000);
        assert_eq!(mark(&first, 32), mark(&first, 47));
        assert_ne!(mark(&first, 32), mark(&first, 48));
        let mut reply = first;
        (reply.source, reply.target) = (first.target, first.source);
        (reply.source_port, reply.target_port) = (first.target_port, first.source_port);
        for other in [flow(2, 40_000), flow(1, 40_001), reply] {
            assert_ne!(mark(&first, 32), mark(&other, 32), "{other:?}");
        }
    }

    #[test]
    fn connections_have_different_places() {
        let by_port = (0..=u16::from(u8::MAX)).map(|port| Found::of(&flow(1, port), 0).place);
        let by_client = (0..=u8::MAX).map(|client| Found::of(&flow(client, 1), 0).place);
        for places in [by_port.collect::<BTreeSet<_>>(), by_client.collect()] {
            assert!(places.len() > 200, "{}", places.len());
            assert!(places.iter().all(|place| *place < FOUND_MAX));
        }
    }
}
