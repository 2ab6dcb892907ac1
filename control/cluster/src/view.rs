//! The cluster's objects in memory: a view that changes are applied to.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::{App, Key};

/// The cluster's objects at one revision of the store. A clone shares the objects.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// All apps.
    pub apps: BTreeMap<Key, Arc<App>>,
    /// All pods.
    pub pods: BTreeMap<Key, Arc<Pod>>,
    /// All nodes.
    pub nodes: BTreeMap<Key, Arc<Node>>,
    /// The store's revision of this view.
    pub revision: u64,
}

/// The new state of one object; `None` if it was deleted.
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
    /// Applies a change. Idempotent.
    pub fn apply(&mut self, revision: u64, change: &Change) {
        match change {
            Change::App(key, app) => put(&mut self.apps, key, app.as_ref()),
            Change::Pod(key, pod) => put(&mut self.pods, key, pod.as_ref()),
            Change::Node(key, node) => put(&mut self.nodes, key, node.as_ref()),
        }
        self.revision = self.revision.max(revision);
    }

    /// The changes that turn `self` into `newer`.
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
    let deleted = older.keys().filter(|key| !newer.contains_key(*key));
    changes.extend(deleted.map(|key| change(key.clone(), None)));
    let updated = newer
        .iter()
        .filter(|(key, object)| older.get(*key) != Some(*object));
    changes.extend(updated.map(|(key, object)| change(key.clone(), Some(Arc::clone(object)))));
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use proptest::prelude::*;

    use super::*;

    /// Changes of pods: each pair is a pod's number and its version; version 0 deletes the pod.
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
    fn a_deleted_object_is_removed_from_the_view() {
        assert!(view(&[(1, 1), (1, 0)]).pods.is_empty());
    }

    proptest! {
        #[test]
        fn the_differences_of_two_views_turn_one_into_the_other(
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
