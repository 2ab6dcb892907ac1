//! The key of an object within its kind: namespace and name.

use std::fmt;

/// Namespace and name of an object. The namespace of a cluster-scoped object (a node) is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace; empty for a cluster-scoped kind.
    pub namespace: String,
    /// Name, unique inside the namespace.
    pub name: String,
}

impl Key {
    /// The key of an object in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster_scoped(name: impl Into<String>) -> Self {
        Self::new("", name)
    }
}

/// `namespace/name`, or only the name for a cluster-scoped object.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
