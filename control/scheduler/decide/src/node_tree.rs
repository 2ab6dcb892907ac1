//! The order of nodes: zone by zone in turn, in each zone as they came.

use crate::node::Node;

/// A region and a zone.
type Zone = (String, String);

/// The names of nodes by zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTree {
    zones: Vec<(Zone, Vec<String>)>,
    len: usize,
}

fn zone_of(node: &Node) -> Zone {
    let (region, zone) = node.zone();
    (region.to_owned(), zone.to_owned())
}

impl NodeTree {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn add(&mut self, node: &Node) {
        let zone = zone_of(node);
        let known = self.zones.iter_mut().find(|(of, _)| *of == zone);
        match known {
            Some((_, names)) if names.contains(&node.name) => return,
            Some((_, names)) => names.push(node.name.clone()),
            None => self.zones.push((zone, vec![node.name.clone()])),
        }
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, node: &Node) {
        let zone = zone_of(node);
        let Some(at) = self.zones.iter().position(|(of, _)| *of == zone) else {
            return;
        };
        let names = &mut self.zones[at].1;
        let before = names.len();
        names.retain(|name| *name != node.name);
        self.len -= before - names.len();
        if names.is_empty() {
            self.zones.remove(at);
        }
    }

    /// Moves a node whose zone has changed to the end of its new zone.
    pub(crate) fn update(&mut self, old: &Node, new: &Node) {
        if old.zone() != new.zone() {
            self.remove(old);
            self.add(new);
        }
    }

    /// All names in order.
    pub(crate) fn list(&self) -> Vec<&str> {
        let longest = self.zones.iter().map(|(_, names)| names.len()).max();
        let turns = 0..longest.unwrap_or(0);
        let turn = |index: usize| {
            let names = self
                .zones
                .iter()
                .filter_map(move |(_, names)| names.get(index));
            names.map(String::as_str)
        };
        turns.flat_map(turn).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, zone: &str) -> Node {
        let text = format!(
            r#"{{"metadata": {{"name": "{name}", "labels": {{"topology.kubernetes.io/zone": "{zone}"}}}}}}"#
        );
        Node::parse(&serde_json::from_str(&text).unwrap()).unwrap()
    }

    #[test]
    fn zones_take_turns() {
        let mut tree = NodeTree::default();
        for (name, zone) in [("a", "1"), ("b", "1"), ("c", "1"), ("d", "2"), ("e", "3")] {
            tree.add(&node(name, zone));
        }
        assert_eq!(tree.list(), ["a", "d", "e", "b", "c"]);
        tree.update(&node("a", "1"), &node("a", "2"));
        assert_eq!(tree.list(), ["b", "d", "e", "c", "a"]);
        tree.remove(&node("d", "2"));
        tree.remove(&node("a", "2"));
        assert_eq!((tree.list(), tree.len()), (vec!["b", "e", "c"], 3));
    }
}
