//! The index beside a fresh scan of the cluster.

use std::collections::BTreeMap;

use dormouse_scheduler_decide::facts::NodeView;

use super::Engine;
use crate::cell::Body;
use crate::counters::Counter;
use crate::number::at;
use crate::segment::{Place, Segment};
use crate::state::State;
use crate::tree::{ROOT, Tree};

/// Panics where the index differs from the cluster.
pub(super) fn check(engine: &Engine) {
    let (index, cluster) = (&engine.index, &engine.cluster);
    let mut kinds = index.kinds.clone();
    let mut placed = 0;
    for &slot in cluster.slot_order() {
        let node = cluster.view(slot).unwrap();
        let row = &index.rows[at(slot)];
        assert_eq!(row.kind, kinds.of(node), "kind of {}", node.name());
        let state = State::of(&node.usage());
        let segment = &index.segments[at(row.segment)];
        match row.place {
            Place::Nowhere => panic!("{} is nowhere", node.name()),
            Place::Odd(at_) => {
                assert!(state.is_none(), "{} is odd", node.name());
                assert_eq!(segment.odd[at(at_)], slot);
            }
            Place::Group(group, member) => {
                let group = &segment.groups[at(group)];
                assert_eq!((Some(row.state), Some(group.state)), (state, state));
                assert_eq!(group.members.as_slice()[at(member)], slot);
                assert_eq!(segment.families[at(group.family)].kind, row.kind);
            }
        }
        placed += 1;
    }
    assert_eq!(kinds.len(), index.kinds.len(), "unknown kinds");
    let in_segments = index.segments.iter().map(nodes_len);
    assert_eq!(in_segments.sum::<usize>(), placed);
    let counters = index.counters.from(0);
    counters.for_each(|(_, counter)| check_counter(engine, counter));
}

fn nodes_len(segment: &Segment) -> usize {
    let trees = segment.families.iter().map(|family| &family.tree);
    segment.odd.len()
        + trees
            .map(|tree| check_cell(segment, tree, ROOT))
            .sum::<usize>()
}

/// The number of nodes of a cell, which is compared with the one that is noted.
fn check_cell(segment: &Segment, tree: &Tree, id: u32) -> usize {
    let cell = tree.cell(id);
    let len = match &cell.body {
        Body::Parts(parts) => tree
            .parts(*parts)
            .map(|part| check_cell(segment, tree, part))
            .sum(),
        Body::Groups(groups) => {
            let groups = groups.iter().enumerate().map(|(index, entry)| {
                let group = &segment.groups[at(entry.group)];
                assert_eq!(at(group.index), index);
                assert_eq!(at(entry.nodes_len), group.members.len());
                assert_eq!(
                    (group.state, entry.evenness),
                    (entry.state, entry.state.evenness())
                );
                group.members.len()
            });
            groups.sum()
        }
    };
    assert_eq!(at(cell.nodes_len), len);
    assert_eq!(cell.bounds.is_some(), len > 0);
    len
}

fn check_counter(engine: &Engine, counter: &Counter) {
    let cluster = &engine.cluster;
    let (mut by_node, mut by_kind) = (BTreeMap::new(), BTreeMap::new());
    for &slot in cluster.slot_order() {
        let pods = cluster.view(slot).map(NodeView::pods);
        let included = pods
            .into_iter()
            .flatten()
            .filter(|pod| counter.census.counts(pod));
        let len = u32::try_from(included.count()).unwrap();
        if len > 0 {
            by_node.insert(slot, len);
            *by_kind.entry(engine.index.rows[at(slot)].kind).or_insert(0) += len;
        }
    }
    let ours: BTreeMap<u32, u32> = counter
        .by_node
        .slots()
        .map(|slot| (slot, counter.by_node.pods(slot)))
        .collect();
    assert_eq!(ours, by_node, "{:?}", counter.census);
    let mut in_levels = 0;
    for (level, slots) in counter.by_node.levels() {
        for slot in slots {
            assert_eq!(engine.index.rows[at(*slot)].kind, level.kind);
            assert_eq!(ours[slot], level.pods);
        }
        in_levels += slots.len();
    }
    assert_eq!(in_levels, ours.len());
    for kind in engine.index.kinds.all() {
        let expected = by_kind.get(&kind).copied().unwrap_or(0);
        assert_eq!(counter.of_kind(kind), expected, "{:?}", counter.census);
    }
}
