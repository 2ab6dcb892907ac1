//! Maps by names of objects: each pod is looked up in several of them at each change. The seed is this process' own, so that names cannot be
//! chosen to collide.

/// A map with a fast hash.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
