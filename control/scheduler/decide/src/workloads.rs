//! Services and controllers, by which the default spread constraints select pods.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ReplicationController, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::labels::LabelMap;
use crate::pod::{Controller, Pod};
use crate::selector::Selector;

/// The namespace and the name of an object.
type Key = (String, String);

/// The workloads of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workloads {
    services: BTreeMap<String, BTreeMap<String, LabelMap>>,
    replication_controllers: BTreeMap<Key, LabelMap>,
    /// A selector that cannot be parsed is missing.
    replica_sets: BTreeMap<Key, Option<Selector>>,
    stateful_sets: BTreeMap<Key, Option<Selector>>,
}

/// Namespace and name.
pub(crate) fn key(meta: &ObjectMeta) -> Key {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    (text(&meta.namespace), text(&meta.name))
}

fn parsed(selector: &LabelSelector) -> Option<Selector> {
    Selector::of(Some(selector)).ok()
}

/// Sets a value; whether that changes anything.
pub(crate) fn set<K: Ord, V: PartialEq>(all: &mut BTreeMap<K, V>, key: K, value: V) -> bool {
    let is_new = all.get(&key) != Some(&value);
    if is_new {
        all.insert(key, value);
    }
    is_new
}

/// Each change returns whether it is one.
impl Workloads {
    pub(crate) fn set_service(&mut self, service: &Service) -> bool {
        let (namespace, name) = key(&service.metadata);
        let spec = service.spec.as_ref();
        let selector = spec.and_then(|spec| spec.selector.clone());
        let all = self.services.entry(namespace).or_default();
        match selector {
            Some(selector) => set(all, name, selector),
            None => all.remove(&name).is_some(),
        }
    }

    pub(crate) fn remove_service(&mut self, namespace: &str, name: &str) -> bool {
        let all = self.services.get_mut(namespace);
        all.is_some_and(|all| all.remove(name).is_some())
    }

    pub(crate) fn set_replication_controller(
        &mut self,
        controller: &ReplicationController,
    ) -> bool {
        let spec = controller.spec.as_ref();
        let selector = spec.and_then(|spec| spec.selector.clone());
        let key = key(&controller.metadata);
        let selector = selector.unwrap_or_default();
        set(&mut self.replication_controllers, key, selector)
    }

    pub(crate) fn remove_replication_controller(&mut self, namespace: &str, name: &str) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        self.replication_controllers.remove(&key).is_some()
    }

    pub(crate) fn set_replica_set(&mut self, object: &ReplicaSet) -> bool {
        let selector = object.spec.as_ref().map(|spec| &spec.selector);
        let selector = selector.map_or(Some(Selector::Nothing), parsed);
        set(&mut self.replica_sets, key(&object.metadata), selector)
    }

    pub(crate) fn remove_replica_set(&mut self, namespace: &str, name: &str) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        self.replica_sets.remove(&key).is_some()
    }

    pub(crate) fn set_stateful_set(&mut self, object: &StatefulSet) -> bool {
        let selector = object.spec.as_ref().map(|spec| &spec.selector);
        let selector = selector.map_or(Some(Selector::Nothing), parsed);
        set(&mut self.stateful_sets, key(&object.metadata), selector)
    }

    pub(crate) fn remove_stateful_set(&mut self, namespace: &str, name: &str) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        self.stateful_sets.remove(&key).is_some()
    }

    /// What the Services of the pod and its controller select, all together.
    pub(crate) fn selector(&self, pod: &Pod) -> Selector {
        let services = self.services.get(&pod.key.namespace);
        let services = services.into_iter().flat_map(BTreeMap::values);
        let has = |(key, value): (&String, &String)| pod.labels.get(key) == Some(value);
        let mut labels = LabelMap::new();
        for selector in services.filter(|selector| selector.iter().all(has)) {
            labels.extend(selector.clone());
        }
        let Some(controller) = &pod.controller else {
            return Selector::of_labels(&labels);
        };
        let key = (pod.key.namespace.clone(), controller.name.clone());
        if controller.is("v1", "ReplicationController") {
            labels.extend(
                self.replication_controllers
                    .get(&key)
                    .cloned()
                    .unwrap_or_default(),
            );
        }
        let mut selector = Selector::of_labels(&labels);
        let of_set = if controller.is("apps/v1", "ReplicaSet") {
            self.replica_sets.get(&key)
        } else if controller.is("apps/v1", "StatefulSet") {
            self.stateful_sets.get(&key)
        } else {
            None
        };
        if let Some(Some(more)) = of_set {
            selector.and(more.clone());
        }
        selector
    }
}

impl Controller {
    fn is(&self, api_version: &str, kind: &str) -> bool {
        self.api_version == api_version && self.kind == kind
    }
}
