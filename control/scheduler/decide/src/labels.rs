//! Labels of an object, in little memory: equal ones are shared once they are interned.

use std::collections::BTreeMap;
use std::ops::Index;
use std::sync::Arc;

use crate::interner::Interner;

/// The label of a node's own name: another one for each node, so that it is kept apart.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// Labels as an object has them.
pub(crate) type LabelMap = BTreeMap<String, String>;

/// Labels of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Labels {
    shared: Arc<LabelMap>,
    hostname: Option<String>,
}

impl Labels {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&String> {
        if key == HOSTNAME {
            self.hostname.as_ref()
        } else {
            self.shared.get(key)
        }
    }

    pub(crate) fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.hostname.is_none()
    }

    /// Shares the memory of equal labels.
    pub(crate) fn intern(&mut self, interner: &mut Interner<LabelMap>) {
        self.shared = interner.intern(&self.shared);
    }
}

impl Index<&str> for Labels {
    type Output = String;

    fn index(&self, key: &str) -> &String {
        match (&self.hostname, key) {
            (Some(hostname), HOSTNAME) => hostname,
            _ => &self.shared[key],
        }
    }
}

impl From<LabelMap> for Labels {
    fn from(mut labels: LabelMap) -> Self {
        let hostname = labels.remove(HOSTNAME);
        Self {
            shared: Arc::new(labels),
            hostname,
        }
    }
}

impl FromIterator<(String, String)> for Labels {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self::from(pairs.into_iter().collect::<LabelMap>())
    }
}
