//! The times at which apps are planned again, one for each app. Pure.

use std::collections::{BTreeSet, HashMap};

use dormouse_cluster::Key;
use k8s_openapi::jiff::Timestamp;

/// The apps that are planned at a time.
#[derive(Debug, Default)]
pub(super) struct Due {
    times: BTreeSet<(Timestamp, Key)>,
    by_app: HashMap<Key, Timestamp>,
}

impl Due {
    /// Sets the time of an app.
    pub(super) fn insert(&mut self, app: Key, at: Timestamp) {
        self.remove(&app);
        self.by_app.insert(app.clone(), at);
        self.times.insert((at, app));
    }

    pub(super) fn remove(&mut self, app: &Key) {
        if let Some(at) = self.by_app.remove(app) {
            self.times.remove(&(at, app.clone()));
        }
    }

    /// The earliest time.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Takes the apps whose time has come.
    pub(super) fn take(&mut self, now: Timestamp) -> BTreeSet<Key> {
        let mut taken = BTreeSet::new();
        while self.next().is_some_and(|at| at <= now) {
            if let Some((_, app)) = self.times.pop_first() {
                self.by_app.remove(&app);
                taken.insert(app);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_has_one_time_the_last_one_set() {
        let (web, docs) = (Key::new("shop", "web"), Key::new("shop", "docs"));
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut due = Due::default();
        due.insert(web.clone(), at(10));
        due.insert(docs.clone(), at(20));
        due.insert(web.clone(), at(30));
        assert_eq!(due.next(), Some(at(20)));
        assert_eq!(due.take(at(25)), BTreeSet::from([docs.clone()]));
        assert_eq!(due.take(at(25)), BTreeSet::new());
        due.insert(docs.clone(), at(26));
        due.remove(&docs);
        assert_eq!(due.take(at(30)), BTreeSet::from([web]));
        assert_eq!(due.next(), None);
    }
}
