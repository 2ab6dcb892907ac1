//! What is known of one namespace. All of it shares the names, which are kept once.

use std::collections::HashMap;
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
