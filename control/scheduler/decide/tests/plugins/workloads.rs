//! Random Services and controllers, whose pods are spread by default.

use dormouse_scheduler_decide::Snapshot;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ReplicationController, Service};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{object, one_of, some_of};
use crate::selector;

const SELECTED: &[(&str, &[&str])] = &[("app", &["a", "b"]), ("tier", &["x"])];
const NAMES: [&str; 2] = ["w0", "w1"];
/// Those of which there are objects, and one that is no workload here.
pub(crate) const KINDS: &[&str] = &["ReplicationController", "ReplicaSet", "StatefulSet", "Job"];

#[derive(Clone, Debug, Default)]
pub(crate) struct Workloads {
    pub(crate) services: Vec<Service>,
    pub(crate) replication_controllers: Vec<ReplicationController>,
    pub(crate) replica_sets: Vec<ReplicaSet>,
    pub(crate) stateful_sets: Vec<StatefulSet>,
}

impl Workloads {
    pub(crate) fn set(&self, snapshot: &mut Snapshot) {
        self.services
            .iter()
            .for_each(|one| snapshot.set_service(one));
        self.replication_controllers
            .iter()
            .for_each(|one| snapshot.set_replication_controller(one));
        self.replica_sets
            .iter()
            .for_each(|one| snapshot.set_replica_set(one));
        self.stateful_sets
            .iter()
            .for_each(|one| snapshot.set_stateful_set(one));
    }
}

/// At most two workloads of a kind, with names of [`NAMES`].
pub(crate) fn random() -> impl Strategy<Value = Workloads> {
    let pairs = || {
        some_of(SELECTED).prop_map(|pairs| {
            if pairs == json!({}) {
                Value::Null
            } else {
                pairs
            }
        })
    };
    (
        workloads(pairs()),
        workloads(pairs()),
        workloads(selector::random()),
        workloads(selector::random()),
    )
        .prop_map(
            |(services, controllers, replica_sets, stateful_sets)| Workloads {
                services: services.into_iter().map(object).collect(),
                replication_controllers: controllers.into_iter().map(object).collect(),
                replica_sets: replica_sets.into_iter().map(object).collect(),
                stateful_sets: stateful_sets.into_iter().map(object).collect(),
            },
        )
}

fn workloads(selector: impl Strategy<Value = Value>) -> impl Strategy<Value = Vec<Value>> {
    let one = (one_of(&["default", "default", "other"]), selector);
    prop::collection::vec(one, 0..=NAMES.len()).prop_map(|all| {
        let named = NAMES.iter().zip(all);
        let objects = named.map(|(name, (namespace, selector))| {
            json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector,
                "serviceName": "s", "template": {}}})
        });
        objects.collect()
    })
}
