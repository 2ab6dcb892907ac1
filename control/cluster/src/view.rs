//! The cluster as one value in memory, folded from changes: everything below a source reads this.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::{App, Key};

/// The cluster at one revision of its store. Cloning copies pointers only.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// All apps.
    pub apps: BTreeMap<Key, Arc<App>>,
    /// All pods.
    pub pods: BTreeMap<Key, Arc<Pod>>,
    /// All nodes; their keys have no namespace.
    pub nodes: BTreeMap<Key, Arc<Node>>,
    /// The store's revision that this view shows.
    pub revision: u64,
}

/// One object's new state; `None` when it is gone.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// An app.
    App(Key, Option<Arc<App>>),
    /// A pod.
    Pod(Key, Option<Arc<Pod>>),
    /// A node.
    Node(Key, Option<Arc<Node>>),
}

impl View {
    /// Takes a change in. Applying a change twice is the same as once.
    pub fn apply(&mut self, revision: u64, change: &Change) {
        match change {
            Change::App(key, app) => put(&mut self.apps, key, app.as_ref()),
            Change::Pod(key, pod) => put(&mut self.pods, key, pod.as_ref()),
            Change::Node(key, node) => put(&mut self.nodes, key, node.as_ref()),
        }
        self.revision = self.revision.max(revision);
    }

    /// The changes that make `newer` out of `self`.
    pub fn changes_to(&self, newer: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        differences(&self.nodes, &newer.nodes, Change::Node, &mut changes);
        differences(&self.apps, &newer.apps, Change::App, &mut changes);
        differences(&self.pods, &newer.pods, Change::Pod, &mut changes);
        changes
    }
}

fn put<K>(map: &mut BTreeMap<Key, Arc<K>>, key: &Key, object: Option<&Arc<K>>) {
    match object {
        Some(object) => drop(map.insert(key.clone(), Arc::clone(object))),
        None => drop(map.remove(key)),
    }
}

fn differences<K: PartialEq>(
    older: &BTreeMap<Key, Arc<K>>,
    newer: &BTreeMap<Key, Arc<K>>,
    change: fn(Key, Option<Arc<K>>) -> Change,
    changes: &mut Vec<Change>,
) {
    let gone = older.keys().filter(|key| !newer.contains_key(*key));
    changes.extend(gone.map(|key| change(key.clone(), None)));
    let renewed = newer
        .iter()
        .filter(|(key, object)| older.get(*key) != Some(*object));
    changes.extend(renewed.map(|(key, object)| change(key.clone(), Some(Arc::clone(object)))));
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use proptest::prelude::*;

    use super::*;

    /// Each pair is a pod's number and its version; version 0 removes it.
    fn changes(steps: &[(u8, u8)]) -> Vec<Change> {
        let one = |(number, version): &(u8, u8)| {
            let mut pod = Pod::default();
            pod.labels_mut()
                .insert("version".into(), version.to_string());
            Change::Pod(
                Key::new("default", number.to_string()),
                (*version > 0).then(|| Arc::new(pod)),
            )
        };
        steps.iter().map(one).collect()
    }

    fn view(steps: &[(u8, u8)]) -> View {
        let mut view = View::default();
        for change in changes(steps) {
            view.apply(1, &change);
        }
        view
    }

    #[test]
    fn a_removed_object_leaves_the_view() {
        assert!(view(&[(1, 1), (1, 0)]).pods.is_empty());
    }

    proptest! {
        #[test]
        fn the_difference_of_two_views_makes_one_out_of_the_other(
            older in prop::collection::vec((0u8..8, 0u8..3), 0..20),
            newer in prop::collection::vec((0u8..8, 0u8..3), 0..20),
        ) {
            let (mut older, newer) = (view(&older), view(&newer));
            for change in older.changes_to(&newer) {
                older.apply(2, &change);
            }
            prop_assert_eq!(&older.pods, &newer.pods);
            prop_assert_eq!(older.changes_to(&newer), vec![]);
        }
    }
}
