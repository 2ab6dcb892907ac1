//! A list whose items are found by a key, without a comparison of each with each.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

/// The items of a list, of which several may have the same value of the key.
pub(super) struct Keyed<'a> {
    key: &'a str,
    /// `None` where an item was taken.
    items: Vec<Option<Value>>,
    places: HashMap<Value, BTreeSet<usize>>,
}

impl<'a> Keyed<'a> {
    pub(super) fn new(key: &'a str, list: Vec<Value>) -> Self {
        let mut keyed = Self {
            key,
            items: Vec::with_capacity(list.len()),
            places: HashMap::new(),
        };
        for item in list {
            keyed.push(item);
        }
        keyed
    }

    /// Removes the first item with this value of the key. Its place stays free for [`put`](Self::put).
    pub(super) fn take_first(&mut self, value: &Value) -> Option<(usize, Value)> {
        let place = self.places.get_mut(value)?.pop_first()?;
        Some((place, self.items[place].take()?))
    }

    /// Puts an item in a place that was taken.
    pub(super) fn put(&mut self, place: usize, item: Value) {
        if let Some(value) = item.get(self.key) {
            let places = self.places.entry(value.clone()).or_default();
            places.insert(place);
        }
        self.items[place] = Some(item);
    }

    /// Adds an item at the end.
    pub(super) fn push(&mut self, item: Value) {
        let place = self.items.len();
        self.items.push(None);
        self.put(place, item);
    }

    /// The items that are left, in their order.
    pub(super) fn into_list(self) -> Vec<Value> {
        self.items.into_iter().flatten().collect()
    }
}
