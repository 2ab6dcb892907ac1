//! What plugins read of a pod, parsed once.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod as ApiPod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Malformed;
use crate::affinity::Affinity;
use crate::node_selector::{Preferences, RequiredNode};
use crate::ports::HostPort;
use crate::requests::Requests;
use crate::selector::Labels;
use crate::spread::{Action, Constraint};
use crate::taints::Toleration;
use crate::volumes::PodVolume;

/// The namespace and the name of a pod, which identify it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// The controller of a pod, by its owner reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Controller {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// A pod: what is its own, and what pods of the same template share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub(crate) key: PodKey,
    pub(crate) uid: Box<str>,
    node_name: Option<Arc<str>>,
    pub(crate) nominated_node: Box<str>,
    pub(crate) start_time: Option<Timestamp>,
    pub(crate) is_terminating: bool,
    /// It terminates because the scheduler preempted it.
    pub(crate) is_preempted: bool,
    pub(crate) requests: Arc<Requests>,
    rules: Arc<Rules>,
}

/// What decides where a pod may go, but for its requests: the same for the pods of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// That of the pod, too.
    namespace: String,
    pub(crate) labels: Labels,
    pub(crate) priority: i32,
    pub(crate) never_preempts: bool,
    pub(crate) controller: Option<Controller>,
    pub(crate) gates: Vec<String>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) required_node: RequiredNode,
    /// An error has Kubernetes' text: the cycle fails with it once nodes are scored.
    pub(crate) preferred_nodes: Option<Result<Preferences, String>>,
    pub(crate) affinity: Arc<Affinity>,
    /// `None` for a pod without constraints of its own. An error has Kubernetes' text: the cycle fails with it once
    /// constraints with the action are counted.
    pub(crate) spread: Option<Vec<(Action, Result<Constraint, String>)>>,
    pub(crate) ports: Vec<HostPort>,
    /// The images of containers and of volumes, each with a tag.
    pub(crate) images: Vec<String>,
    pub(crate) containers_len: i64,
    pub(crate) volumes: Vec<PodVolume>,
    pub(crate) claims_devices: bool,
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Pod {
    /// Parses an object as an API server stores it: with its defaults set.
    pub fn parse(pod: &ApiPod) -> Result<Self, Malformed> {
        let nothing = (PodSpec::default(), PodStatus::default());
        let spec = pod.spec.as_ref().unwrap_or(&nothing.0);
        let status = pod.status.as_ref().unwrap_or(&nothing.1);
        let meta = &pod.metadata;
        let key = key(meta)?;
        let labels: Labels = meta.labels.clone().unwrap_or_default().into();
        let is_terminating = meta.deletion_timestamp.is_some();
        let node_affinity = spec.affinity.as_ref();
        let node_affinity = node_affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        let required = node_affinity.and_then(|one| {
            one.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
        let preferred = node_affinity.and_then(|one| {
            one.preferred_during_scheduling_ignored_during_execution
                .as_deref()
        });
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let rules = Rules {
            namespace: key.namespace.clone(),
            priority: spec.priority.unwrap_or(0),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            controller: controller(meta),
            gates: gates(spec),
            tolerations: tolerations(spec),
            required_node: RequiredNode::parse(spec.node_selector.as_ref(), required),
            preferred_nodes: preferred.map(Preferences::parse),
            affinity: Arc::new(Affinity::parse(&key.namespace, spec.affinity.as_ref())),
            spread: constraints(spec, &labels),
            ports: HostPort::all(spec),
            images: images(spec),
            containers_len: containers_len(spec),
            volumes: PodVolume::all(spec),
            claims_devices: spec.resource_claims.iter().flatten().next().is_some(),
            labels,
        };
        Ok(Self {
            uid: text(&meta.uid).into(),
            node_name: named(spec.node_name.as_deref().unwrap_or_default()),
            nominated_node: text(&status.nominated_node_name).into(),
            start_time: status.start_time.as_ref().map(|time| time.0),
            is_terminating,
            is_preempted: is_terminating && is_preempted(status),
            requests: Arc::new(Requests::parse(pod)?),
            rules: Arc::new(rules),
            key,
        })
    }

    /// Parses an object that differs from another one, which was parsed as this pod, by its name alone; `None` for other objects.
    pub fn parse_alike(&self, own: &ApiPod, other: &ApiPod) -> Option<Result<Self, Malformed>> {
        let (one, another) = (&own.metadata, &other.metadata);
        let is_alike = one.namespace == another.namespace
            && one.labels == another.labels
            && one.owner_references == another.owner_references
            && one.deletion_timestamp == another.deletion_timestamp
            && own.spec == other.spec
            && own.status == other.status;
        if !is_alike {
            return None;
        }
        Some(key(&other.metadata).map(|key| Self {
            key,
            uid: other.metadata.uid.clone().unwrap_or_default().into(),
            node_name: self.node_name.clone(),
            nominated_node: self.nominated_node.clone(),
            start_time: self.start_time,
            is_terminating: self.is_terminating,
            is_preempted: self.is_preempted,
            requests: Arc::clone(&self.requests),
            rules: Arc::clone(&self.rules),
        }))
    }

    /// What decides where it may go, but for its requests.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// What it requests.
    pub fn requests(&self) -> &Arc<Requests> {
        &self.requests
    }

    /// Takes rules and requests that are equal to its own, so that their memory is shared.
    pub fn share(&mut self, rules: &Arc<Rules>, requests: &Arc<Requests>) {
        debug_assert!(*rules == self.rules && *requests == self.requests);
        self.rules.clone_from(rules);
        self.requests.clone_from(requests);
    }

    /// The namespace and the name.
    pub fn key(&self) -> &PodKey {
        &self.key
    }

    /// The priority; a missing one is 0.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// The node that it is bound to; empty if it is pending.
    pub fn node_name(&self) -> &str {
        self.node_name.as_deref().unwrap_or_default()
    }

    /// The node that it is nominated to; empty if it is to none.
    pub fn nominated_node(&self) -> &str {
        &self.nominated_node
    }

    /// The names of its images.
    pub fn images(&self) -> impl Iterator<Item = &str> {
        self.images.iter().map(String::as_str)
    }

    /// Whether it has required terms of affinity or anti-affinity.
    pub fn has_required_terms(&self) -> bool {
        !self.affinity.required.is_empty() || !self.affinity.required_anti.is_empty()
    }

    /// Whether it was deleted and has not ended yet.
    pub fn is_terminating(&self) -> bool {
        self.is_terminating
    }

    /// The pod once it is bound to a node.
    #[must_use]
    pub fn bound(mut self, node: impl Into<Arc<str>>, start_time: Option<Timestamp>) -> Self {
        self.bind(node, start_time);
        self
    }

    /// Binds the pod to a node.
    pub fn bind(&mut self, node: impl Into<Arc<str>>, start_time: Option<Timestamp>) {
        self.node_name = named(node);
        self.nominated_node = Box::default();
        self.start_time = start_time;
    }

    /// The pod once it is nominated to a node; to none for an empty name.
    #[must_use]
    pub fn nominated(mut self, node: &str) -> Self {
        self.nominated_node = node.into();
        self
    }

    /// Whether it is on a node, or will be once victims are gone.
    pub(crate) fn is_placed(&self) -> bool {
        self.node_name.is_some() || !self.nominated_node.is_empty()
    }
}

impl Deref for Pod {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        &self.rules
    }
}

/// The name of a node; `None` for an empty one.
fn named(node: impl Into<Arc<str>>) -> Option<Arc<str>> {
    let node = node.into();
    (!node.is_empty()).then_some(node)
}

fn key(meta: &ObjectMeta) -> Result<PodKey, Malformed> {
    let name = meta.name.clone().filter(|name| !name.is_empty());
    Ok(PodKey {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: name.ok_or_else(|| Malformed::new("metadata.name", "a pod has a name"))?,
    })
}

fn is_preempted(status: &PodStatus) -> bool {
    let mut targets = status.conditions.iter().flatten();
    let target = targets.find(|one| one.type_ == "DisruptionTarget");
    target.is_some_and(|one| {
        one.status == "True" && one.reason.as_deref() == Some("PreemptionByScheduler")
    })
}

fn controller(meta: &ObjectMeta) -> Option<Controller> {
    let owners = meta.owner_references.iter().flatten();
    let is_controller = |owner: &&OwnerReference| owner.controller == Some(true);
    owners
        .into_iter()
        .find(is_controller)
        .map(|owner| Controller {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
        })
}

fn gates(spec: &PodSpec) -> Vec<String> {
    let gates = spec.scheduling_gates.iter().flatten();
    gates.map(|gate| gate.name.clone()).collect()
}

fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let all = spec.tolerations.iter().flatten();
    all.map(Toleration::parse).collect()
}

/// An action that is not known is looked at by no plugin.
fn constraints(
    spec: &PodSpec,
    labels: &Labels,
) -> Option<Vec<(Action, Result<Constraint, String>)>> {
    let all = spec.topology_spread_constraints.as_deref();
    let all = all.filter(|all| !all.is_empty())?.iter();
    let parsed = all.filter_map(|one| {
        let action = Action::parse(&one.when_unsatisfiable)?;
        Some((action, Constraint::parse(action, one, labels)))
    });
    Some(parsed.collect())
}

fn containers_len(spec: &PodSpec) -> i64 {
    let init = spec.init_containers.as_ref().map_or(0, Vec::len);
    i64::try_from(init + spec.containers.len()).unwrap_or(i64::MAX)
}

fn images(spec: &PodSpec) -> Vec<String> {
    let init = spec.init_containers.iter().flatten();
    let containers = init.chain(&spec.containers);
    let of_containers = containers.map(|container| container.image.as_deref().unwrap_or_default());
    let volumes = spec.volumes.iter().flatten();
    let of_volumes = volumes.filter_map(|volume| {
        let image = volume.image.as_ref()?;
        Some(image.reference.as_deref().unwrap_or_default())
    });
    of_containers.chain(of_volumes).map(with_tag).collect()
}

/// The name of an image, with the default tag if it has neither tag nor digest.
fn with_tag(name: &str) -> String {
    if name.rfind(':') > name.rfind('/') {
        name.to_owned()
    } else {
        format!("{name}:latest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        assert_eq!(with_tag("a/b"), "a/b:latest");
        assert_eq!(with_tag("host:5000/b"), "host:5000/b:latest");
        assert_eq!(with_tag("host:5000/b:1"), "host:5000/b:1");
        assert_eq!(with_tag("b@sha256:00"), "b@sha256:00");
        assert_eq!(with_tag("b"), "b:latest");
    }

    #[test]
    fn a_pod_needs_a_name() {
        let error = Pod::parse(&ApiPod::default()).unwrap_err();
        assert_eq!(error.field, "metadata.name");
    }

    #[test]
    fn a_pod_that_differs_by_its_name_is_parsed_like_the_other() {
        let object = |name: &str, app: &str, cpu: &str, node: &str| -> ApiPod {
            let pod = serde_json::json!({"metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": app}},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
                "status": {"nominatedNodeName": node}});
            serde_json::from_value(pod).unwrap()
        };
        let own = object("a", "x", "1", "");
        let pod = Pod::parse(&own).unwrap();
        let alike = |other: &ApiPod| pod.parse_alike(&own, other).map(Result::unwrap);
        let other = object("b", "x", "1", "");
        assert_eq!(alike(&other), Some(Pod::parse(&other).unwrap()));
        for other in [("y", "1", ""), ("x", "2", ""), ("x", "1", "node")] {
            let (app, cpu, node) = other;
            assert_eq!(alike(&object("b", app, cpu, node)), None, "{other:?}");
        }
    }
}
