//! What is known of one namespace. All of it shares the names, which are kept once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::entry::Entry;

/// The services and slices of one namespace.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    /// By the service's name. Boxed, for a table has much more room than it has entries.
    pub(super) entries: HashMap<Arc<str>, Box<Entry>>,
    /// By the slice's name: the name of the service that it is under.
    pub(super) owners: HashMap<Arc<str>, Arc<str>>,
}

impl Namespace {
    /// Whether there is neither service nor slice.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.owners.is_empty()
    }
}

/// The name as the table has it, or a new one.
pub(super) fn shared<T>(table: &HashMap<Arc<str>, T>, name: &str) -> Arc<str> {
    let known = table.get_key_value(name).map(|(known, _)| known);
    known.map_or_else(|| name.into(), Arc::clone)
}

/// Names of ports: a cluster has few, and each in every service.
#[derive(Debug, Default)]
pub(super) struct PortNames {
    known: HashSet<Arc<str>>,
    /// Number of names above which unused ones are removed.
    limit: usize,
}

impl PortNames {
    /// Puts the name as it is known in the place of one that is the same.
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
