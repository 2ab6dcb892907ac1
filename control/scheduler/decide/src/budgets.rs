//! PodDisruptionBudgets: how many of their pods may be evicted.

use std::collections::BTreeSet;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::pod::Pod;
use crate::selector::Selector;

/// A budget.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Budget {
    namespace: String,
    /// A selector that cannot be parsed selects no pod.
    selector: Selector,
    pub(crate) allowed: i32,
    /// Pods that are already being evicted, by name.
    disrupted: BTreeSet<String>,
}

impl Budget {
    pub(crate) fn parse(budget: &PodDisruptionBudget) -> Self {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let status = budget.status.as_ref();
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
        Self {
            namespace: budget.metadata.namespace.clone().unwrap_or_default(),
            selector: Selector::of(selector).unwrap_or(Selector::Nothing),
            allowed: status
                .and_then(|status| status.disruptions_allowed)
                .unwrap_or(0),
            disrupted: disrupted
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect(),
        }
    }

    /// Whether the eviction of a pod counts.
    pub(crate) fn counts(&self, pod: &Pod) -> bool {
        self.namespace == pod.key.namespace
            && !pod.labels.is_empty()
            && !self.selector.is_empty()
            && self.selector.matches(&pod.labels)
            && !self.disrupted.contains(&pod.key.name)
    }
}
