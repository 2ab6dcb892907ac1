//! The services and slices of one namespace, and shared strings for names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::entry::Entry;

/// The services and slices of one namespace.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    /// By Service name. Boxed, because a hash table has more room than entries.
    pub(super) entries: HashMap<Arc<str>, Box<Entry>>,
    /// By slice name: the name of its Service.
    pub(super) owners: HashMap<Arc<str>, Arc<str>>,
}

impl Namespace {
    /// Whether there is no service and no slice.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.owners.is_empty()
    }
}

/// The stored copy of a name, or a new one.
pub(super) fn shared<T>(table: &HashMap<Arc<str>, T>, name: &str) -> Arc<str> {
    let known = table.get_key_value(name).map(|(known, _)| known);
    known.map_or_else(|| name.into(), Arc::clone)
}

/// Interned names of ports: a cluster has few, and most services use the same ones.
#[derive(Debug, Default)]
pub(super) struct PortNames {
    known: HashSet<Arc<str>>,
    /// Size at which unused names are removed.
    limit: usize,
}

impl PortNames {
    /// Replaces a name by its stored copy.
    pub(super) fn share(&mut self, name: &mut Arc<str>) {
        if let Some(known) = self.known.get(name) {
            *name = Arc::clone(known);
            return;
        }
        if self.known.len() >= self.limit {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.limit = 2 * self.known.len() + 64;
        }
        self.known.insert(Arc::clone(name));
    }
}
