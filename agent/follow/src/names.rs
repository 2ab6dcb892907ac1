//! The names of the objects that are followed: after a list, those that it did not contain are gone.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Namespace and name of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Namespace; empty for an object without one.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
}

impl Key {
    /// The key of the object with this metadata.
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
    }
}

/// The names, each with the number of the last list that contained it.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<Key, u32>,
    list: u32,
}

impl Names {
    /// Begins a list; one that was not ended no longer counts.
    pub(crate) fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// Adds a name.
    pub(crate) fn insert(&mut self, key: Key) {
        self.known.insert(key, self.list);
    }

    /// Removes a name. Returns whether it was known.
    pub(crate) fn remove(&mut self, key: &Key) -> bool {
        self.known.remove(key).is_some()
    }

    /// Ends the list: removes and returns the names that were not added since it began.
    pub(crate) fn end_list(&mut self) -> Vec<Key> {
        let list = self.list;
        let gone = self.known.extract_if(|_, seen| *seen != list);
        gone.map(|(key, _)| key).collect()
    }

    /// Number of names.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            namespace: "shop".into(),
            name: name.into(),
        }
    }

    #[test]
    fn a_list_that_was_interrupted_does_not_count() {
        let mut names = Names::default();
        names.begin_list();
        names.insert(key("a"));
        names.insert(key("b"));
        assert_eq!(names.end_list(), []);
        names.begin_list();
        names.insert(key("a"));
        names.begin_list();
        names.insert(key("b"));
        assert_eq!(names.end_list(), [key("a")]);
        assert_eq!(names.len(), 1);
    }

    #[test]
    fn an_object_that_appears_while_a_list_is_read_stays() {
        let mut names = Names::default();
        names.begin_list();
        names.insert(key("new"));
        assert!(names.remove(&key("new")));
        names.insert(key("new"));
        assert_eq!(names.end_list(), []);
    }
}
