//! Which apps a change concerns that divide their traffic: the app itself, or the parent of a child. Pure; other apps cost nothing.

use std::collections::{BTreeSet, HashMap, HashSet};

use dormouse_cluster::{Key, StoredApp};

/// The apps that divide their traffic, and their children.
#[derive(Debug, Default)]
pub(crate) struct Families {
    parents: HashSet<Key>,
    /// The parent of each child.
    children: HashMap<Key, Key>,
    /// Those that were known before the list in progress.
    before: BTreeSet<Key>,
}

impl Families {
    /// An app was created or changed, or is in a list. Returns the app to plan.
    pub(crate) fn changed(&mut self, key: &Key, app: &StoredApp) -> Option<Key> {
        if let Some(parent) = &app.parent {
            let parent = Key::new(&key.namespace, parent);
            self.children.insert(key.clone(), parent.clone());
            return Some(parent);
        }
        if let Some(parent) = self.children.remove(key) {
            return Some(parent);
        }
        let divides = if app.has_traffic {
            self.parents.insert(key.clone());
            true
        } else {
            self.parents.remove(key)
        };
        divides.then(|| key.clone())
    }

    /// An app was deleted. Returns the app to plan.
    pub(crate) fn deleted(&mut self, key: &Key) -> Option<Key> {
        let parent = self.children.remove(key);
        parent.or_else(|| self.parents.remove(key).then(|| key.clone()))
    }

    /// A list of all apps begins.
    pub(crate) fn listing(&mut self) {
        self.before = self.parents.drain().collect();
        self.before
            .extend(self.children.drain().map(|(_, parent)| parent));
    }

    /// The list is complete. Returns the apps to plan of which it may have shown nothing.
    pub(crate) fn listed(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.before)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn app(meta: &Value, spec: &Value) -> StoredApp {
        let app = json!({"metadata": meta, "spec": spec});
        StoredApp::decode(serde_json::to_vec(&app).unwrap(), 1).unwrap()
    }

    fn plain() -> StoredApp {
        app(&json!({}), &json!({}))
    }

    fn divided() -> StoredApp {
        let latest = json!({"latestRevision": true, "percent": 100});
        app(&json!({}), &json!({"traffic": [latest]}))
    }

    fn child() -> StoredApp {
        app(
            &json!({"labels": {"dormouse.dev/parent": "web"}}),
            &json!({}),
        )
    }

    #[test]
    fn an_app_that_divides_no_traffic_concerns_none() {
        let mut families = Families::default();
        let key = Key::new("shop", "web");
        assert_eq!(families.changed(&key, &plain()), None);
        assert_eq!(families.deleted(&key), None);
    }

    #[test]
    fn an_app_that_no_longer_divides_its_traffic_is_planned_once_more() {
        let mut families = Families::default();
        let key = Key::new("shop", "web");
        assert_eq!(families.changed(&key, &divided()), Some(key.clone()));
        assert_eq!(families.changed(&key, &plain()), Some(key.clone()));
        assert_eq!(families.changed(&key, &plain()), None);
        families.changed(&key, &divided());
        assert_eq!(families.deleted(&key), Some(key.clone()));
        assert_eq!(families.deleted(&key), None);
    }

    #[test]
    fn a_change_of_a_child_concerns_its_parent() {
        let mut families = Families::default();
        let (key, parent) = (Key::new("shop", "web-1"), Key::new("shop", "web"));
        assert_eq!(families.changed(&key, &child()), Some(parent.clone()));
        assert_eq!(families.changed(&key, &plain()), Some(parent.clone()));
        assert_eq!(families.deleted(&key), None);
        families.changed(&key, &child());
        assert_eq!(families.deleted(&key), Some(parent));
    }

    #[test]
    fn what_a_list_does_not_show_is_planned_after_it() {
        let mut families = Families::default();
        let key = Key::new("shop", "web");
        families.changed(&key, &divided());
        families.listing();
        assert_eq!(families.listed(), BTreeSet::from([key.clone()]));
        assert_eq!(families.listed(), BTreeSet::new());
        assert_eq!(families.deleted(&key), None);
    }
}
