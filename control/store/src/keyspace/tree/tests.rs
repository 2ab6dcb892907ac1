//! The tree compared with a `BTreeMap`, and its shape.

use std::{
    collections::{BTreeMap, btree_map::Entry::Vacant},
    ops::Bound,
};

use proptest::prelude::*;

use super::{
    inner::{CHILDREN_MAX, CHILDREN_MIN, Inner},
    leaf::LEAF_ENTRIES_MAX,
    memory::separator_bytes,
    subtree::Node,
    *,
};
use crate::keyspace::cell::CELL_HEADER_BYTES;

/// The tree, the cells and the model.
struct Model {
    records: Slab,
    tree: Tree,
    cells: BTreeMap<Vec<u8>, Entry>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Inserts keys that are absent: the first number, the stride and how many.
    Insert(u16, u16, u16),
    /// Adds keys that are absent at once: likewise.
    Extend(u16, u16, u16),
    /// Removes the keys of a range of numbers.
    Remove(u16, u16),
    /// Marks the keys of a range as live or deleted.
    SetLive(u16, u16, bool),
    /// Marks all keys between those of two numbers as deleted.
    Kill(u16, u16),
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0..8_000_u16;
    let stride = prop_oneof![Just(1_u16), 2..2_000_u16];
    prop_oneof![
        4 => (number(), stride, 0..1_500_u16).prop_map(|(from, by, n)| Step::Insert(from, by, n)),
        2 => (number(), 1..900_u16, 0..4_000_u16)
            .prop_map(|(from, by, n)| Step::Extend(from, by, n)),
        2 => (number(), 0..2_000_u16).prop_map(|(from, n)| Step::Remove(from, n)),
        1 => (number(), 0..300_u16, any::<bool>())
            .prop_map(|(from, n, live)| Step::SetLive(from, n, live)),
        1 => (number(), number()).prop_map(|(from, to)| Step::Kill(from, to)),
    ]
}

/// Keys of different lengths, some of which are prefixes of others.
fn key(number: u16) -> Vec<u8> {
    let decimal = format!("/k/{number}");
    decimal.into_bytes()
}

impl Model {
    fn new() -> Self {
        Self {
            records: Slab::new(),
            tree: Tree::new(),
            cells: BTreeMap::new(),
        }
    }

    fn insert(&mut self, number: u16) {
        let live = !number.is_multiple_of(3);
        let cell = self
            .records
            .insert(&[&[0; CELL_HEADER_BYTES], &key(number)]);
        if self.cells.contains_key(&key(number)) {
            assert!(
                !self.tree.remove(&self.records, cell),
                "another cell with this key"
            );
            self.records.remove(cell);
            return;
        }
        self.tree.insert(&self.records, cell, live);
        self.cells.insert(key(number), Entry { cell, live });
    }

    fn extend(&mut self, numbers: impl Iterator<Item = u16>) {
        let mut added = Vec::new();
        for number in numbers {
            let Vacant(vacant) = self.cells.entry(key(number)) else {
                continue;
            };
            let cell = &[&[0; CELL_HEADER_BYTES], vacant.key().as_slice()];
            let entry = Entry {
                cell: self.records.insert(cell),
                live: !number.is_multiple_of(3),
            };
            added.push(*vacant.insert(entry));
        }
        self.tree.extend(&self.records, added);
    }

    fn remove(&mut self, number: u16) {
        let Some(entry) = self.cells.remove(&key(number)) else {
            return;
        };
        assert!(self.tree.remove(&self.records, entry.cell));
        assert!(
            !self.tree.remove(&self.records, entry.cell),
            "removed twice"
        );
        self.records.remove(entry.cell);
    }

    fn set_live(&mut self, number: u16, live: bool) {
        let Some(entry) = self.cells.get_mut(&key(number)) else {
            return;
        };
        let changed = self.tree.set_live(&self.records, entry.cell, live);
        assert_eq!(changed, entry.live != live);
        entry.live = live;
    }

    fn kill(&mut self, from: u16, to: u16) {
        let mut keys = [key(from), key(to)];
        keys.sort();
        let [from, to] = keys;
        let bounds = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        self.tree.kill(&self.records, bounds.0, bounds.1);
        if from != to {
            for (_, entry) in self.cells.range_mut::<[u8], _>(bounds) {
                entry.live = false;
            }
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Insert(from, by, n) => {
                (0..n).for_each(|i| self.insert(from.wrapping_add(i.wrapping_mul(by)) % 8_000));
            }
            Step::Extend(from, by, n) => {
                self.extend((0..n).map(|i| from.wrapping_add(i.wrapping_mul(by)) % 8_000));
            }
            Step::Remove(from, n) => (from..from + n).for_each(|number| self.remove(number)),
            Step::SetLive(from, n, live) => {
                (from..from + n).for_each(|number| self.set_live(number, live));
            }
            Step::Kill(from, to) => self.kill(from, to),
        }
    }

    fn check_range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) {
        let above = || {
            self.cells
                .range::<[u8], _>((from, Bound::Unbounded))
                .map(|(_, cell)| *cell)
        };
        let all = above().take(200);
        assert!(
            self.tree.seek(&self.records, from).take(200).eq(all),
            "{from:?}"
        );
        let live = above().filter(|cell| cell.live).take(200);
        assert!(
            self.tree.seek_live(&self.records, from).take(200).eq(live),
            "{from:?}"
        );
        if !is_empty(from, to) {
            let range = self.cells.range::<[u8], _>((from, to));
            let count = range.filter(|(_, cell)| cell.live).count() as u64;
            assert_eq!(
                self.tree.count(&self.records, from, to),
                count,
                "{from:?} {to:?}"
            );
        }
    }

    /// The tree's contents, and the rules that its nodes follow.
    fn check(&self) {
        assert!(
            self.tree
                .seek(&self.records, Bound::Unbounded)
                .eq(self.cells.values().copied())
        );
        assert_eq!(self.tree.len(), self.cells.len() as u64);
        let live = self.cells.values().filter(|cell| cell.live).count() as u64;
        assert_eq!(self.tree.len_live(), live);
        let bytes = self
            .tree
            .root
            .as_ref()
            .map_or(0, |root| self.check_node(root, true).bytes);
        assert_eq!(self.tree.memory.held_above_leaves(), bytes);
    }

    fn check_node(&self, subtree: &Subtree, root: bool) -> Shape {
        match &subtree.node {
            Node::Leaf(leaf) => {
                let entries: Vec<_> = leaf.entries(&self.tree.memory).collect();
                assert!((1..=LEAF_ENTRIES_MAX).contains(&entries.len()));
                let live = entries.iter().filter(|entry| entry.live).count() as u64;
                assert_eq!(subtree.live, live);
                Shape { depth: 0, bytes: 0 }
            }
            Node::Inner(inner) => {
                assert!(inner.children.len() >= if root { 2 } else { CHILDREN_MIN });
                assert!(inner.children.len() <= CHILDREN_MAX);
                assert_eq!(inner.children.len(), inner.separators.len() + 1);
                assert_eq!(
                    subtree.live,
                    inner.children.iter().map(|child| child.live).sum::<u64>()
                );
                self.check_children(inner)
            }
        }
    }

    fn check_children(&self, inner: &Inner) -> Shape {
        let shapes: Vec<_> = inner
            .children
            .iter()
            .map(|child| self.check_node(child, false))
            .collect();
        assert!(
            shapes.iter().all(|shape| shape.depth == shapes[0].depth),
            "uneven"
        );
        let below: u64 = shapes.iter().map(|shape| shape.bytes).sum();
        let separators: u64 = inner.separators.iter().map(|s| separator_bytes(s)).sum();
        Shape {
            depth: shapes[0].depth + 1,
            bytes: below + separators + Inner::HELD_BYTES,
        }
    }
}

struct Shape {
    depth: u32,
    bytes: u64,
}

fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
    }
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    let key = || {
        prop_oneof![
            (0..8_000_u16).prop_map(key),
            prop::collection::vec(any::<u8>(), 0..4)
        ]
    };
    prop_oneof![
        4 => key().prop_map(Bound::Included),
        4 => key().prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn it_orders_and_counts_as_a_btree_map(
        steps in prop::collection::vec(step(), 1..16),
        ranges in prop::collection::vec((bound(), bound()), 24),
    ) {
        let mut model = Model::new();
        for step in &steps {
            model.apply(step);
            model.check();
        }
        for (from, to) in &ranges {
            model.check_range(from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        }
    }

    #[test]
    fn no_memory_is_held_without_keys(steps in prop::collection::vec(step(), 1..8)) {
        let mut model = Model::new();
        for step in &steps {
            model.apply(step);
        }
        (0..8_000).rev().for_each(|number| model.remove(number));
        prop_assert_eq!(model.tree.held_bytes(), 0);
        prop_assert!(model.tree.root.is_none());
    }

    #[test]
    fn a_separator_is_above_the_left_key_and_not_above_the_right_one(
        a in prop::collection::vec(0..3_u8, 0..5), b in prop::collection::vec(0..3_u8, 0..5),
    ) {
        prop_assume!(a != b);
        let (left, right) = if a < b { (a, b) } else { (b, a) };
        let separator = Memory::new().separator(&left, &right);
        prop_assert!(left.as_slice() < &*separator && &*separator <= right.as_slice());
    }
}

#[test]
fn keys_in_ascending_order_fill_the_leaves() {
    let mut model = Model::new();
    let cells = (0..100_000_u32).map(|n| {
        model
            .records
            .insert(&[&[0; CELL_HEADER_BYTES], &n.to_be_bytes()])
    });
    let cells: Vec<_> = cells.collect();
    for cell in cells {
        model.tree.insert(&model.records, cell, true);
    }
    let held = model.tree.held_bytes();
    assert!(held < 10 * 100_000, "{held} bytes");
    let (from, to) = (1_000_u32.to_be_bytes(), 90_000_u32.to_be_bytes());
    let count = model
        .tree
        .count(&model.records, Bound::Included(&from), Bound::Excluded(&to));
    assert_eq!(count, 89_000);
}
