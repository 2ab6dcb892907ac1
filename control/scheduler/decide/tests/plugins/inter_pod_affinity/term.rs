//! A term: the pods that it matches, and the label of their nodes.

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, WeightedPodAffinityTerm};

use crate::cluster::{Cluster, Labels, spec};
use crate::selector::selects;

#[derive(Clone, Copy)]
pub(super) enum Strength {
    Required,
    Preferred,
}

#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) key: String,
    /// Negative for an anti-affinity; 0 if required.
    pub(super) weight: i64,
    api: PodAffinityTerm,
    namespace: String,
}

impl Term {
    /// The terms of a pod's affinity.
    pub(super) fn near(pod: &Pod, strength: Strength) -> Vec<Self> {
        let affinity = spec(pod).affinity.as_ref();
        let Some(near) = affinity.and_then(|affinity| affinity.pod_affinity.as_ref()) else {
            return Vec::new();
        };
        let required = near
            .required_during_scheduling_ignored_during_execution
            .as_deref();
        let preferred = near
            .preferred_during_scheduling_ignored_during_execution
            .as_deref();
        Self::all(pod, strength, required, preferred)
    }

    /// The terms of a pod's anti-affinity.
    pub(super) fn far(pod: &Pod, strength: Strength) -> Vec<Self> {
        let affinity = spec(pod).affinity.as_ref();
        let Some(far) = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref()) else {
            return Vec::new();
        };
        let required = far
            .required_during_scheduling_ignored_during_execution
            .as_deref();
        let preferred = far
            .preferred_during_scheduling_ignored_during_execution
            .as_deref();
        let terms = Self::all(pod, strength, required, preferred).into_iter();
        terms
            .map(|term| Self {
                weight: -term.weight,
                ..term
            })
            .collect()
    }

    fn all(
        pod: &Pod,
        strength: Strength,
        required: Option<&[PodAffinityTerm]>,
        preferred: Option<&[WeightedPodAffinityTerm]>,
    ) -> Vec<Self> {
        let required = required
            .unwrap_or_default()
            .iter()
            .map(|term| Self::new(pod, term, 0));
        let preferred = preferred.unwrap_or_default().iter();
        let preferred =
            preferred.map(|one| Self::new(pod, &one.pod_affinity_term, one.weight.into()));
        match strength {
            Strength::Required => required.collect(),
            Strength::Preferred => preferred.collect(),
        }
    }

    fn new(pod: &Pod, term: &PodAffinityTerm, weight: i64) -> Self {
        Self {
            key: term.topology_key.clone(),
            weight,
            api: term.clone(),
            namespace: pod.metadata.namespace.clone().unwrap(),
        }
    }

    pub(super) fn weighing(self, weight: i64) -> Self {
        Self { weight, ..self }
    }

    /// The term of the pod to schedule matches a pod. Here a namespace selector that matches no labels at all matches every
    /// namespace, as it does in kube-scheduler.
    pub(super) fn matches(&self, cluster: &Cluster, pod: &Pod) -> bool {
        let selects_none = selects(self.api.namespace_selector.as_ref(), &Labels::new());
        (selects_none || self.is_namespace(cluster, pod)) && self.selects(pod)
    }

    /// The term of a pod that is there matches the pod to schedule.
    pub(super) fn matches_incoming(&self, cluster: &Cluster, pod: &Pod) -> bool {
        self.is_namespace(cluster, pod) && self.selects(pod)
    }

    fn selects(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        selects(self.api.label_selector.as_ref(), &labels)
    }

    /// A namespace that is listed or selected; with neither a list nor a selector the one of the term's pod.
    fn is_namespace(&self, cluster: &Cluster, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_ref().unwrap();
        let listed = self.api.namespaces.as_deref().unwrap_or_default();
        let selector = self.api.namespace_selector.as_ref();
        if listed.is_empty() && selector.is_none() {
            return *namespace == self.namespace;
        }
        listed.contains(namespace) || selects(selector, &cluster.namespace_labels(namespace))
    }
}
