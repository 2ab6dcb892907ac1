//! Changes of the objects that plugins look up.

use super::State;
use crate::source::Related;

impl State {
    /// Applies a change of an object other than a node or a pod. No plugin wakes pods for these kinds.
    pub fn apply_related(&mut self, related: &Related) {
        let cluster = self.engine.cluster();
        match related {
            Related::Namespace(_, Some(namespace)) => cluster.set_namespace(namespace),
            Related::Namespace(key, None) => cluster.remove_namespace(&key.name),
            Related::Service(_, Some(service)) => cluster.set_service(service),
            Related::Service(key, None) => cluster.remove_service(&key.namespace, &key.name),
        }
    }
}
