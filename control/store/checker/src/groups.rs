//! Groups of keys that share transactions: the operations of two groups are independent of each other.

use std::collections::{BTreeMap, HashMap};

use crate::history::Operation;

/// The operations by group of keys. A store is linearizable if it is for each group (Herlihy and Wing: locality).
pub fn split(operations: &[Operation]) -> Vec<Vec<&Operation>> {
    let mut forest = Forest::default();
    for operation in operations {
        let mut keys = operation.request.keys();
        let Some(first) = keys.next() else { continue };
        let first = forest.node(first);
        for key in keys {
            let node = forest.node(key);
            forest.join(first, node);
        }
    }
    let mut groups: BTreeMap<usize, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        if let Some(key) = operation.request.keys().next() {
            let node = forest.node(key);
            groups.entry(forest.root(node)).or_default().push(operation);
        }
    }
    groups.into_values().collect()
}

/// A union-find forest of keys.
#[derive(Default)]
struct Forest<'a> {
    nodes: HashMap<&'a str, usize>,
    parents: Vec<usize>,
}

impl<'a> Forest<'a> {
    fn node(&mut self, key: &'a str) -> usize {
        let next = self.parents.len();
        let node = *self.nodes.entry(key).or_insert(next);
        if node == next {
            self.parents.push(next);
        }
        node
    }

    fn root(&mut self, mut node: usize) -> usize {
        while self.parents[node] != node {
            self.parents[node] = self.parents[self.parents[node]];
            node = self.parents[node];
        }
        node
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[b] = a;
    }
}
