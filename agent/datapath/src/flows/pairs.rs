//! Removal of connections from the flow table: both entries, or none.

use aya::maps::{HashMap, MapData};
use dormouse_ebpf::flow::{FORWARDED, Flow, FlowKey, REPLY, REVOKED};
use dormouse_ebpf::stage::Stage;

use super::timeouts::Timeouts;
use crate::removal::{NOEXIST, remove_if};

pub(super) type Table = HashMap<MapData, FlowKey, Flow>;

/// A connection as the table has it.
struct Pair {
    /// The entry that was asked for.
    key: FlowKey,
    flow: Flow,
    /// The entry of the opposite direction; none: it has none, or was evicted.
    other: Option<(FlowKey, Flow)>,
}

impl Pair {
    fn look(table: &Table, key: &FlowKey) -> Option<Self> {
        let flow = table.get(key, 0).ok()?;
        let other_key = key.reply(&flow);
        let other = if flow.is(FORWARDED | REVOKED) {
            None
        } else {
            table.get(&other_key, 0).ok()
        };
        // The NAT port of an ended connection may be another one's.
        let is_opposite =
            |other: &Flow| other_key.reply(other) == *key && other.is(REPLY) != flow.is(REPLY);
        Some(Self {
            key: *key,
            flow,
            other: other.filter(is_opposite).map(|other| (other_key, other)),
        })
    }

    fn is_over(&self, timeouts: Timeouts, now_ns: u64) -> bool {
        let (mut stage, mut silent_ns) = (Stage(self.flow.stage), self.flow.silent_ns(now_ns));
        if let Some((_, other)) = &self.other {
            stage = stage.and(Stage(other.stage));
            silent_ns = silent_ns.min(other.silent_ns(now_ns));
        }
        timeouts.are_over(&self.key, &self.flow, stage, silent_ns)
    }
}

/// Removes a connection that is over, by the key of one of its entries; returns the removed entries. Its last packet may come
/// at any moment: an entry that has changed since it was looked at stays, and so does the other one.
pub(super) fn remove_over(
    table: &mut Table,
    key: &FlowKey,
    timeouts: Timeouts,
    now_ns: u64,
) -> Vec<Flow> {
    let Some(pair) = Pair::look(table, key).filter(|pair| pair.is_over(timeouts, now_ns)) else {
        return Vec::new();
    };
    let Pair { key, flow, other } = pair;
    // The client's entry first: without it, the next packet begins a connection, which replaces the reply entry.
    let (first, second) = match other {
        Some(forward) if flow.is(REPLY) => (forward, Some((key, flow))),
        other => ((key, flow), other),
    };
    let Some(removed) = remove_if(table, &first.0, |last| *last == first.1) else {
        return Vec::new();
    };
    let Some((key, reply)) = second else {
        return vec![removed];
    };
    if let Some(reply) = remove_if(table, &key, |last| *last == reply) {
        return vec![removed, reply];
    }
    let _ = table.insert(first.0, removed, NOEXIST);
    Vec::new()
}

#[cfg(test)]
mod tests {
    use dormouse_ebpf::flow::{MASQUERADED, SERVICE};
    use dormouse_ebpf::packet::{Packet, TCP};

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const NOW_NS: u64 = 1_000_000 * SECOND_NS;
    const TIMEOUTS: Timeouts = Timeouts {
        idle_ns: 600 * SECOND_NS,
        scarce: false,
    };

    const KEY: FlowKey = FlowKey {
        source: [1; 16],
        target: [2; 16],
        source_port: 40_000,
        target_port: 80,
        protocol: TCP as u32,
    };

    fn closed(side: fn(Stage, &Packet) -> Stage) -> u32 {
        let fin = Packet {
            protocol: TCP,
            flags: 0x11,
            ..Packet::default()
        };
        side(Stage::NEW, &fin).0
    }

    /// A masqueraded connection's entries, after both sides have closed it, silent for so many seconds.
    fn pair(forward_s: u64, reply_s: u64) -> [(FlowKey, Flow); 2] {
        let forward = Flow {
            source: [9; 16],
            target: [3; 16],
            source_port: 12_345,
            target_port: 8_000,
            kind: SERVICE | MASQUERADED,
            stage: closed(Stage::after_client),
            seen_ns: NOW_NS - forward_s * SECOND_NS,
            ..Flow::default()
        };
        let reply = Flow {
            source: KEY.target,
            target: KEY.source,
            source_port: KEY.target_port,
            target_port: KEY.source_port,
            kind: forward.kind | REPLY,
            stage: closed(Stage::after_backend),
            seen_ns: NOW_NS - reply_s * SECOND_NS,
            ..forward
        };
        [(KEY, forward), (KEY.reply(&forward), reply)]
    }

    fn table(entries: &[(FlowKey, Flow)]) -> Table {
        let mut table = Table::create(8, 0).unwrap();
        for (key, flow) in entries {
            table.insert(key, flow, 0).unwrap();
        }
        table
    }

    fn left(table: &Table, entries: &[(FlowKey, Flow)]) -> usize {
        let is_left = |(key, _): &&(FlowKey, Flow)| table.get(key, 0).is_ok();
        entries.iter().filter(is_left).count()
    }

    #[test]
    fn both_entries_of_a_closed_connection_go_by_either_key() {
        for place in [0, 1] {
            let entries = pair(61, 61);
            let mut table = table(&entries);
            let removed = remove_over(&mut table, &entries[place].0, TIMEOUTS, NOW_NS);
            assert_eq!(removed, entries.map(|(_, flow)| flow));
            assert_eq!(left(&table, &entries), 0);
        }
    }

    #[test]
    fn a_packet_of_either_side_keeps_both_entries() {
        for entries in [pair(61, 5), pair(5, 61)] {
            for place in [0, 1] {
                let mut table = table(&entries);
                let removed = remove_over(&mut table, &entries[place].0, TIMEOUTS, NOW_NS);
                assert!(removed.is_empty());
                assert_eq!(left(&table, &entries), 2);
            }
        }
    }

    #[test]
    fn an_entry_whose_other_one_was_evicted_goes_alone() {
        let entries = pair(3_601, 3_601);
        for place in [0, 1] {
            let mut table = table(&entries[place..=place]);
            let removed = remove_over(&mut table, &entries[place].0, TIMEOUTS, NOW_NS);
            assert_eq!(removed, [entries[place].1]);
        }
    }

    #[test]
    fn the_entry_of_the_next_connection_at_a_nat_port_stays() {
        let [forward, (key, reply)] = pair(3_601, 3_601);
        let next = Flow {
            target_port: 40_001,
            seen_ns: NOW_NS,
            ..reply
        };
        let mut table = table(&[forward, (key, next)]);
        let removed = remove_over(&mut table, &forward.0, TIMEOUTS, NOW_NS);
        assert_eq!(removed, [forward.1]);
        assert_eq!(table.get(&key, 0).unwrap(), next);
    }
}
