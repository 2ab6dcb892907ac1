//! Which apps a change concerns that divide their traffic: the app itself, or the parent of a child. Pure; other apps cost nothing.

use std::collections::{BTreeSet, HashMap, HashSet};

use dormouse_cluster::revision::number_of;
use dormouse_cluster::{Key, StoredApp};

/// An app to plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Touch {
    pub(crate) app: Key,
    /// The child because of which: the number of its revision, and whether it exists.
    pub(crate) child: Option<(u32, bool)>,
}

impl Touch {
    fn of(app: &Key) -> Self {
        let app = app.clone();
        Self { app, child: None }
    }

    /// Because of its child with this key.
    fn of_child(parent: Key, child: &Key, exists: bool) -> Self {
        let number = number_of(&parent.name, &child.name);
        Self {
            app: parent,
            child: number.map(|number| (number, exists)),
        }
    }
}

/// The apps that divide their traffic, and their children.
#[derive(Debug, Default)]
pub(crate) struct Families {
    parents: HashSet<Key>,
    /// The parent of each child.
    children: HashMap<Key, Key>,
    /// Those that were known before the list in progress.
    before: (HashSet<Key>, HashMap<Key, Key>),
}

impl Families {
    /// An app was created or changed, or is in a list. Returns the app to plan.
    pub(crate) fn changed(&mut self, key: &Key, app: &StoredApp) -> Option<Touch> {
        if let Some(parent) = &app.parent {
            let parent = Key::new(&key.namespace, parent);
            self.children.insert(key.clone(), parent.clone());
            return Some(Touch::of_child(parent, key, true));
        }
        if let Some(parent) = self.children.remove(key) {
            return Some(Touch::of_child(parent, key, false));
        }
        let divides = if app.may_divide {
            self.parents.insert(key.clone());
            true
        } else {
            self.parents.remove(key)
        };
        divides.then(|| Touch::of(key))
    }

    /// An app was deleted. Returns the app to plan.
    pub(crate) fn deleted(&mut self, key: &Key) -> Option<Touch> {
        if let Some(parent) = self.children.remove(key) {
            return Some(Touch::of_child(parent, key, false));
        }
        self.parents.remove(key).then(|| Touch::of(key))
    }

    /// A list of all apps begins.
    pub(crate) fn listing(&mut self) {
        self.before = (
            std::mem::take(&mut self.parents),
            std::mem::take(&mut self.children),
        );
    }

    /// The list is complete. Returns the apps to plan of which it may have shown nothing.
    pub(crate) fn listed(&mut self) -> Vec<Touch> {
        let (parents, children) = std::mem::take(&mut self.before);
        let gone = children
            .into_iter()
            .filter(|(child, _)| !self.children.contains_key(child));
        let gone = gone.map(|(child, parent)| Touch::of_child(parent, &child, false));
        gone.chain(parents.iter().map(Touch::of)).collect()
    }
}

/// The children of each app, as the store's changes show them.
#[derive(Debug, Default)]
pub(crate) struct Children(HashMap<Key, BTreeSet<u32>>);

impl Children {
    /// Takes over what a touch says. Returns the app to plan.
    pub(crate) fn touched(&mut self, touch: Touch) -> Key {
        let Touch { app, child } = touch;
        if let Some((number, exists)) = child {
            let all = self.0.entry(app.clone()).or_default();
            if exists {
                all.insert(number);
            } else {
                all.remove(&number);
            }
            if all.is_empty() {
                self.0.remove(&app);
            }
        }
        app
    }

    /// The numbers of the revisions that are children of an app.
    pub(crate) fn of(&self, app: &Key) -> BTreeSet<u32> {
        self.0.get(app).cloned().unwrap_or_default()
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

    fn own() -> Touch {
        Touch::of(&Key::new("shop", "web"))
    }

    fn of_child(exists: bool) -> Touch {
        let child = Some((1, exists));
        Touch { child, ..own() }
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
        assert_eq!(families.changed(&key, &divided()), Some(own()));
        assert_eq!(families.changed(&key, &plain()), Some(own()));
        assert_eq!(families.changed(&key, &plain()), None);
        families.changed(&key, &divided());
        assert_eq!(families.deleted(&key), Some(own()));
        assert_eq!(families.deleted(&key), None);
    }

    #[test]
    fn a_change_of_a_child_concerns_its_parent() {
        let mut families = Families::default();
        let key = Key::new("shop", "web-1");
        assert_eq!(families.changed(&key, &child()), Some(of_child(true)));
        assert_eq!(families.changed(&key, &plain()), Some(of_child(false)));
        assert_eq!(families.deleted(&key), None);
        families.changed(&key, &child());
        assert_eq!(families.deleted(&key), Some(of_child(false)));
    }

    #[test]
    fn what_a_list_does_not_show_is_planned_after_it() {
        let mut families = Families::default();
        let (key, first) = (Key::new("shop", "web"), Key::new("shop", "web-1"));
        families.changed(&key, &divided());
        families.changed(&first, &child());
        families.changed(&Key::new("shop", "web-2"), &child());
        families.listing();
        families.changed(&Key::new("shop", "web-2"), &child());
        let listed = families.listed();
        assert_eq!(listed, [of_child(false), own()]);
        assert_eq!(families.listed(), []);
        assert_eq!(families.deleted(&key), None);
    }

    #[test]
    fn the_children_of_an_app_are_those_that_exist() {
        let (mut children, web) = (Children::default(), Key::new("shop", "web"));
        for touch in [of_child(true), own()] {
            assert_eq!(children.touched(touch), web);
        }
        assert_eq!(children.of(&web), BTreeSet::from([1]));
        children.touched(of_child(false));
        assert!(children.of(&web).is_empty() && children.0.is_empty());
    }
}
