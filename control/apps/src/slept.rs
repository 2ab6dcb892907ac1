//! The last decisions about apps that fell asleep a short time ago: their compact records have none.

use std::collections::{HashMap, VecDeque};

use dormouse_cluster::Key;
use serde_json::Value;

use crate::decisions::Decisions;

/// Limit of these apps; the one that was added first is dropped. With up to 3 kB each they take 3 MB.
pub(crate) const SLEPT_MAX: usize = 1_024;

/// What is known of an app that fell asleep.
#[derive(Debug)]
pub(crate) struct Last {
    pub(crate) app: Key,
    pub(crate) decisions: Decisions,
    /// What their terms meant by the settings of then.
    pub(crate) terms: Vec<Value>,
}

/// The apps of one shard that fell asleep last.
#[derive(Debug)]
pub(crate) struct Slept {
    limit: usize,
    apps: HashMap<u32, Last>,
    /// Their VIPs, in the order in which they were added.
    order: VecDeque<u32>,
}

impl Slept {
    /// No app, as one of this many parts of those of all shards.
    pub(crate) fn new(parts: usize) -> Self {
        Self {
            limit: (SLEPT_MAX / parts).max(1),
            apps: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Adds an app that falls asleep.
    pub(crate) fn add(&mut self, vip: u32, last: Last) {
        if self.apps.insert(vip, last).is_some() {
            return;
        }
        self.order.push_back(vip);
        if self.order.len() > self.limit
            && let Some(first) = self.order.pop_front()
        {
            self.apps.remove(&first);
        }
    }

    /// What is known of the app with this VIP.
    pub(crate) fn get(&self, vip: u32, app: &Key) -> Option<&Last> {
        self.apps.get(&vip).filter(|last| last.app == *app)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_apps_are_known_by_vip_and_name() {
        let app = |number: u32| Key::new("shop", format!("app-{number}"));
        let mut slept = Slept::new(SLEPT_MAX / 2);
        for vip in [1, 2, 1, 3] {
            let last = Last {
                app: app(vip),
                decisions: Decisions::default(),
                terms: Vec::new(),
            };
            slept.add(vip, last);
        }
        assert!(slept.get(1, &app(1)).is_none());
        assert!(slept.get(2, &app(2)).is_some() && slept.get(3, &app(3)).is_some());
        assert!(slept.get(3, &app(2)).is_none());
        assert_eq!(slept.order.len(), slept.apps.len());
    }
}
