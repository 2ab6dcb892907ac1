//! Key ranges with a value each, found by a key that they contain: an interval tree.
//!
//! It is a treap (a binary tree by start and end, a heap by random priorities, so that its height is
//! logarithmic whatever the order of inserts) whose nodes store the largest end of their subtree. A
//! lookup skips the subtrees that end at or below the key.

use std::{
    cmp::Ordering,
    hash::{BuildHasher, RandomState},
};

use bytes::Bytes;

/// The exclusive end of a range.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum End {
    /// All keys below this one.
    Before(Bytes),
    /// All keys; orders above every other end.
    Unbounded,
}

impl End {
    fn is_above(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => key < end.as_ref(),
            Self::Unbounded => true,
        }
    }
}

/// A range: its start (inclusive) and its end. Ordered by start.
pub(super) type Span = (Bytes, End);

type Link<V> = Option<Box<Node<V>>>;

#[derive(Debug)]
struct Node<V> {
    span: Span,
    value: V,
    priority: u64,
    /// The largest end in the subtree of this node.
    end_max: End,
    left: Link<V>,
    right: Link<V>,
}

impl<V> Node<V> {
    fn update(&mut self) {
        let children = [&self.left, &self.right].into_iter().flatten();
        let ends = children.map(|child| &child.end_max);
        let end_max = ends.fold(&self.span.1, |max, end| max.max(end));
        self.end_max = end_max.clone();
    }

    fn child(&mut self, to: Ordering) -> &mut Link<V> {
        if to == Ordering::Less {
            &mut self.left
        } else {
            &mut self.right
        }
    }
}

/// Values by range.
#[derive(Debug)]
pub(super) struct RangeMap<V> {
    root: Link<V>,
    /// A random seed: priorities that a client could predict would allow a tree as deep as a list.
    priorities: RandomState,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self {
            root: None,
            priorities: RandomState::new(),
        }
    }
}

impl<V> RangeMap<V> {
    /// Inserts a range that the map does not contain.
    pub(super) fn insert(&mut self, span: Span, value: V) {
        let node = Box::new(Node {
            priority: self.priorities.hash_one(&span),
            end_max: span.1.clone(),
            span,
            value,
            left: None,
            right: None,
        });
        insert(&mut self.root, node);
    }

    /// The value of exactly this range.
    pub(super) fn get_mut(&mut self, span: &Span) -> Option<&mut V> {
        let mut link = &mut self.root;
        loop {
            let node = link.as_mut()?;
            match span.cmp(&node.span) {
                Ordering::Equal => return Some(&mut node.value),
                to => link = node.child(to),
            }
        }
    }

    /// Removes a range; returns its value.
    pub(super) fn remove(&mut self, span: &Span) -> Option<V> {
        remove(&mut self.root, span)
    }

    /// Calls `visit` for each range that contains the key.
    pub(super) fn containing(&mut self, key: &[u8], visit: &mut impl FnMut(&mut V)) {
        containing(&mut self.root, key, visit);
    }
}

fn insert<V>(link: &mut Link<V>, mut node: Box<Node<V>>) {
    *link = match link.take() {
        Some(mut root) if root.priority >= node.priority => {
            insert(root.child(node.span.cmp(&root.span)), node);
            root.update();
            Some(root)
        }
        subtree => {
            (node.left, node.right) = split(subtree, &node.span);
            node.update();
            Some(node)
        }
    };
}

/// Splits a subtree into the ranges below `span` and those above.
fn split<V>(link: Link<V>, span: &Span) -> (Link<V>, Link<V>) {
    let Some(mut root) = link else {
        return (None, None);
    };
    if root.span < *span {
        let (below, above) = split(root.right.take(), span);
        root.right = below;
        root.update();
        (Some(root), above)
    } else {
        let (below, above) = split(root.left.take(), span);
        root.left = above;
        root.update();
        (below, Some(root))
    }
}

/// Joins two subtrees; all ranges of the first are below those of the second.
fn join<V>(below: Link<V>, above: Link<V>) -> Link<V> {
    match (below, above) {
        (Some(mut root), Some(other)) if root.priority >= other.priority => {
            root.right = join(root.right.take(), Some(other));
            root.update();
            Some(root)
        }
        (below @ Some(_), Some(mut root)) => {
            root.left = join(below, root.left.take());
            root.update();
            Some(root)
        }
        (below, above) => below.or(above),
    }
}

fn remove<V>(link: &mut Link<V>, span: &Span) -> Option<V> {
    let root = link.as_mut()?;
    match span.cmp(&root.span) {
        Ordering::Equal => {
            let root = *link.take()?;
            *link = join(root.left, root.right);
            Some(root.value)
        }
        to => {
            let removed = remove(root.child(to), span);
            root.update();
            removed
        }
    }
}

fn containing<V>(link: &mut Link<V>, key: &[u8], visit: &mut impl FnMut(&mut V)) {
    let Some(node) = link else { return };
    if !node.end_max.is_above(key) {
        return;
    }
    containing(&mut node.left, key, visit);
    if node.span.0 <= key {
        if node.span.1.is_above(key) {
            visit(&mut node.value);
        }
        containing(&mut node.right, key, visit);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn span() -> impl Strategy<Value = Span> {
        let key = || prop::collection::vec(0..3_u8, 0..3).prop_map(Bytes::from);
        let end = prop_oneof![
            4 => key().prop_map(End::Before),
            1 => Just(End::Unbounded),
        ];
        (key(), end)
    }

    fn height<V>(node: Option<&Node<V>>) -> usize {
        let of = |link: &Link<V>| height(link.as_deref());
        node.map_or(0, |node| 1 + of(&node.left).max(of(&node.right)))
    }

    proptest! {
        #[test]
        fn a_key_finds_exactly_the_ranges_that_contain_it(
            steps in prop::collection::vec((any::<bool>(), span()), 0..120),
        ) {
            let mut ranges = RangeMap::default();
            let mut model = BTreeMap::new();
            for (number, (inserts, span)) in steps.into_iter().enumerate() {
                if !inserts {
                    prop_assert_eq!(ranges.remove(&span), model.remove(&span));
                } else if model.insert(span.clone(), number).is_none() {
                    ranges.insert(span, number);
                } else if let Some(value) = ranges.get_mut(&span) {
                    *value = number;
                }
            }
            for key in [&[][..], &[0], &[0, 1], &[1], &[1, 2, 0], &[2], &[2, 2], &[9]] {
                let mut found = Vec::new();
                ranges.containing(key, &mut |&mut number| found.push(number));
                let contains = |(start, end): &Span| start <= key && end.is_above(key);
                let wanted = model.iter().filter(|(span, _)| contains(span));
                prop_assert_eq!(found, wanted.map(|(_, &number)| number).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn ten_thousand_ranges_in_order_make_a_low_tree() {
        let mut ranges = RangeMap::default();
        for number in 0..10_000_u32 {
            let key = |number: u32| Bytes::copy_from_slice(&number.to_be_bytes());
            ranges.insert((key(number), End::Before(key(number + 1))), ());
        }
        // Expected about 2.99 times the binary logarithm, 40; a list would be 10,000 high.
        let height = height(ranges.root.as_deref());
        assert!(height < 100, "{height}");
    }
}
