//! Topology spread constraints of pods.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use crate::labels::LabelMap;
use crate::node::Node;
use crate::pod::Pod;
use crate::selector::{Labels, Selector};
use crate::taints;

/// What to do with a node that violates a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    DoNotSchedule,
    ScheduleAnyway,
}

/// A constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Constraint {
    pub(crate) action: Action,
    pub(crate) topology_key: String,
    pub(crate) max_skew: i64,
    pub(crate) min_domains: usize,
    pub(crate) selector: Selector,
    /// Nodes that the pod's node affinity excludes are no domains.
    honors_affinity: bool,
    /// Nodes with taints that the pod does not tolerate are no domains.
    honors_taints: bool,
}

impl Action {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "DoNotSchedule" => Some(Self::DoNotSchedule),
            "ScheduleAnyway" => Some(Self::ScheduleAnyway),
            _ => None,
        }
    }
}

impl Constraint {
    /// A constraint on the pods that a selector, given later, selects.
    pub(crate) fn of_default(action: Action, topology_key: &str, max_skew: i64) -> Self {
        Self {
            action,
            topology_key: topology_key.to_owned(),
            max_skew,
            min_domains: 1,
            selector: Selector::Nothing,
            honors_affinity: true,
            honors_taints: false,
        }
    }

    /// An error has Kubernetes' text.
    pub(crate) fn parse(
        action: Action,
        constraint: &TopologySpreadConstraint,
        labels: &Labels,
    ) -> Result<Self, String> {
        let keys = constraint.match_label_keys.iter().flatten();
        let own: LabelMap = keys
            .filter_map(|key| Some((key.clone(), labels.get(key)?.clone())))
            .collect();
        let mut selector = Selector::of(constraint.label_selector.as_ref())?;
        selector.and(Selector::of_labels(&own));
        let honors = |policy: &Option<String>, default: bool| {
            policy.as_ref().map_or(default, |policy| policy == "Honor")
        };
        Ok(Self {
            action,
            topology_key: constraint.topology_key.clone(),
            max_skew: i64::from(constraint.max_skew),
            min_domains: usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(0),
            selector,
            honors_affinity: honors(&constraint.node_affinity_policy, true),
            honors_taints: honors(&constraint.node_taints_policy, false),
        })
    }

    /// Whether `node` is a domain for `pod`.
    pub(crate) fn includes(&self, pod: &Pod, node: &Node) -> bool {
        let by_affinity = || pod.required_node.matches(&node.labels, &node.name);
        let by_taints = || taints::admits(&node.taints, &pod.tolerations);
        (!self.honors_affinity || by_affinity()) && (!self.honors_taints || by_taints())
    }

    /// Whether nodes with taints that the pod does not tolerate are no domains.
    pub(crate) fn honors_taints(&self) -> bool {
        self.honors_taints
    }

    /// Whether the node has the topology keys of all constraints.
    pub(crate) fn all_keyed<'a>(mut all: impl Iterator<Item = &'a Self>, labels: &Labels) -> bool {
        all.all(|one| labels.contains_key(&one.topology_key))
    }

    /// Whether the constraint selects a pod.
    pub(crate) fn selects(&self, labels: &Labels) -> bool {
        self.selector.matches(labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::tests::labels;

    #[test]
    fn label_keys_narrow_the_selector() {
        let constraint = r#"{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["ver", "none"]}"#;
        let api = serde_json::from_str(constraint).unwrap();
        let own = labels(&[("app", "a"), ("ver", "1")]);
        let parsed = Constraint::parse(Action::DoNotSchedule, &api, &own).unwrap();
        assert!(parsed.selects(&own));
        assert!(!parsed.selects(&labels(&[("app", "a"), ("ver", "2")])));
        assert!(parsed.honors_affinity && !parsed.honors_taints);
    }
}
