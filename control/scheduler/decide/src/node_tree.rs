//! The order of nodes: zone by zone in turn, in each zone as they came.

use crate::node::Node;

/// A region and a zone.
type Zone = (String, String);

/// Nodes by zone, each by its slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTree {
    zones: Vec<(Zone, Vec<u32>)>,
}

fn zone_of(node: &Node) -> Zone {
    let (region, zone) = node.zone();
    (region.to_owned(), zone.to_owned())
}

impl NodeTree {
    /// Adds a node that is not there.
    pub(crate) fn add(&mut self, node: &Node, slot: u32) {
        let is_same = |(region, name): &Zone| (region.as_str(), name.as_str()) == node.zone();
        match self.zones.iter_mut().find(|(of, _)| is_same(of)) {
            Some((_, slots)) => slots.push(slot),
            None => self.zones.push((zone_of(node), vec![slot])),
        }
    }

    pub(crate) fn remove(&mut self, node: &Node, slot: u32) {
        let zone = zone_of(node);
        let Some(at) = self.zones.iter().position(|(of, _)| *of == zone) else {
            return;
        };
        let slots = &mut self.zones[at].1;
        if let Some(index) = slots.iter().position(|other| *other == slot) {
            slots.remove(index);
        }
        if slots.is_empty() {
            self.zones.remove(at);
        }
    }

    /// Moves a node whose zone has changed to the end of its new zone.
    pub(crate) fn update(&mut self, old: &Node, new: &Node, slot: u32) {
        if old.zone() != new.zone() {
            self.remove(old, slot);
            self.add(new, slot);
        }
    }

    /// All nodes in order.
    pub(crate) fn list(&self) -> Vec<u32> {
        let longest = self.zones.iter().map(|(_, slots)| slots.len()).max();
        let turns = 0..longest.unwrap_or(0);
        let turn = |index: usize| {
            let slots = self.zones.iter();
            slots.filter_map(move |(_, slots)| slots.get(index).copied())
        };
        turns.flat_map(turn).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(zone: &str) -> Node {
        let text = format!(
            r#"{{"metadata": {{"name": "n", "labels": {{"topology.kubernetes.io/zone": "{zone}"}}}}}}"#
        );
        Node::parse(&serde_json::from_str(&text).unwrap()).unwrap()
    }

    #[test]
    fn zones_take_turns() {
        let mut tree = NodeTree::default();
        for (slot, zone) in [(0, "1"), (1, "1"), (2, "1"), (3, "2"), (4, "3")] {
            tree.add(&node(zone), slot);
        }
        assert_eq!(tree.list(), [0, 3, 4, 1, 2]);
        tree.update(&node("1"), &node("2"), 0);
        assert_eq!(tree.list(), [1, 3, 4, 2, 0]);
        tree.remove(&node("2"), 3);
        tree.remove(&node("2"), 0);
        assert_eq!(tree.list(), [1, 4, 2]);
    }
}
