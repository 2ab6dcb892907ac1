//! A constraint: its domains, the pods that it counts, and the nodes on which it counts them.

use k8s_openapi::api::core::v1::{Node, Pod, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::cluster::{Cluster, Labels, spec};
use crate::selector::{may_be_on, selects};
use crate::taint_toleration::{is_tolerated, taints};

#[derive(Clone, Debug)]
pub(super) struct Constraint {
    pub(super) action: String,
    pub(super) key: String,
    pub(super) max_skew: i64,
    pub(super) domains_min: usize,
    honors_affinity: bool,
    honors_taints: bool,
    /// All have to select a pod.
    selectors: Vec<Option<LabelSelector>>,
}

impl Constraint {
    /// The constraints of a pod. The values of its match label keys join the selector.
    pub(super) fn own(pod: &Pod) -> Vec<Self> {
        let labels = labels(pod);
        let all = spec(pod).topology_spread_constraints.iter().flatten();
        all.map(|one| {
            let keys = one.match_label_keys.iter().flatten();
            let pairs = keys.filter_map(|key| Some((key.clone(), labels.get(key)?.clone())));
            let selectors = vec![one.label_selector.clone(), Some(of_labels(pairs.collect()))];
            Self::new(one, selectors)
        })
        .collect()
    }

    /// The constraints of a pod that has none: of a list, or Kubernetes' own. They select what the pod's Services and its
    /// controller select; without one of these there are none.
    pub(super) fn defaults(
        list: Option<&[TopologySpreadConstraint]>,
        cluster: &Cluster,
        pod: &Pod,
    ) -> Vec<Self> {
        let selectors = of_workloads(cluster, pod);
        if selectors.iter().flatten().all(is_empty) {
            return Vec::new();
        }
        let system = |key: &str, max_skew| TopologySpreadConstraint {
            topology_key: key.to_owned(),
            max_skew,
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            ..TopologySpreadConstraint::default()
        };
        let system = [
            system("kubernetes.io/hostname", 3),
            system("topology.kubernetes.io/zone", 5),
        ];
        let all = list.unwrap_or(&system).iter();
        all.map(|one| Self::new(one, selectors.clone())).collect()
    }

    fn new(constraint: &TopologySpreadConstraint, selectors: Vec<Option<LabelSelector>>) -> Self {
        let domains_min = constraint.min_domains.unwrap_or(1);
        Self {
            action: constraint.when_unsatisfiable.clone(),
            key: constraint.topology_key.clone(),
            max_skew: constraint.max_skew.into(),
            domains_min: usize::try_from(domains_min).unwrap(),
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
            selectors,
        }
    }

    /// Pods on the node count.
    pub(super) fn includes(&self, pod: &Pod, node: &Node) -> bool {
        let is_hard = |effect: &str| effect != "PreferNoSchedule";
        let mut hard = taints(node).iter().filter(|taint| is_hard(&taint.effect));
        (!self.honors_affinity || may_be_on(pod, node))
            && (!self.honors_taints || hard.all(|taint| is_tolerated(pod, taint)))
    }

    pub(super) fn selects(&self, pod: &Pod) -> bool {
        let labels = labels(pod);
        self.selectors
            .iter()
            .all(|selector| selects(selector.as_ref(), &labels))
    }

    /// The pods on a node that are in the pod's namespace, and not about to go. A selector without requirements counts none.
    pub(super) fn count(&self, cluster: &Cluster, pod: &Pod, node: &Node) -> i64 {
        if self
            .selectors
            .iter()
            .all(|selector| selector.as_ref().is_some_and(is_empty))
        {
            return 0;
        }
        let counts = |other: &&Pod| {
            other.metadata.namespace == pod.metadata.namespace
                && other.metadata.deletion_timestamp.is_none()
                && self.selects(other)
        };
        i64::try_from(cluster.pods_on(node).filter(counts).count()).unwrap()
    }
}

fn labels(pod: &Pod) -> Labels {
    pod.metadata.labels.clone().unwrap_or_default()
}

fn is_empty(selector: &LabelSelector) -> bool {
    let no_labels = selector.match_labels.as_ref().is_none_or(Labels::is_empty);
    no_labels
        && selector
            .match_expressions
            .as_ref()
            .is_none_or(Vec::is_empty)
}

fn of_labels(labels: Labels) -> LabelSelector {
    LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    }
}

/// The selectors of the Services that select the pod, and of the controller that owns it.
fn of_workloads(cluster: &Cluster, pod: &Pod) -> Vec<Option<LabelSelector>> {
    let pod_labels = labels(pod);
    let mut selectors = Vec::new();
    for service in &cluster.workloads.services {
        let is_near = service.metadata.namespace == pod.metadata.namespace;
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone());
        let selector = selector.map(of_labels).filter(|_| is_near);
        if selects(selector.as_ref(), &pod_labels) {
            selectors.push(selector);
        }
    }
    let owners = pod.metadata.owner_references.iter().flatten();
    if let Some(owner) = owners
        .into_iter()
        .find(|owner| owner.controller == Some(true))
    {
        let namespace = &pod.metadata.namespace;
        let owned = |meta: &ObjectMeta| {
            meta.namespace == *namespace && meta.name.as_ref() == Some(&owner.name)
        };
        selectors.extend(match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "ReplicationController") => {
                let found = cluster
                    .workloads
                    .replication_controllers
                    .iter()
                    .find(|one| owned(&one.metadata));
                let pairs = found.and_then(|one| one.spec.as_ref()?.selector.clone());
                pairs.map(|pairs| Some(of_labels(pairs)))
            }
            ("apps/v1", "ReplicaSet") => {
                let found = cluster
                    .workloads
                    .replica_sets
                    .iter()
                    .find(|one| owned(&one.metadata));
                found.map(|one| Some(one.spec.as_ref().unwrap().selector.clone()))
            }
            ("apps/v1", "StatefulSet") => {
                let found = cluster
                    .workloads
                    .stateful_sets
                    .iter()
                    .find(|one| owned(&one.metadata));
                found.map(|one| Some(one.spec.as_ref().unwrap().selector.clone()))
            }
            _ => None,
        });
    }
    selectors
}
