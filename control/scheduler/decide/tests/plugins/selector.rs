//! Selectors of nodes.
//!
//! Sources: the API reference of NodeSelectorTerm and NodeSelectorRequirement; "Assigning Pods to Nodes"
//! (kubernetes.io).

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod};

use crate::cluster::{labels, name, spec};

/// The only field of a node that a term can select.
const NAME: &str = "metadata.name";

/// The pod's node selector, and one of the terms that its node affinity requires.
pub(crate) fn may_be_on(pod: &Pod, node: &Node) -> bool {
    let node_labels = labels(node);
    let mut pairs = spec(pod).node_selector.iter().flatten();
    pairs.all(|(key, value)| node_labels.get(key) == Some(value))
        && required_terms(pod).is_none_or(|terms| terms.iter().any(|term| matches_term(term, node)))
}

pub(crate) fn required_terms(pod: &Pod) -> Option<&[NodeSelectorTerm]> {
    let affinity = spec(pod).affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    Some(&required.node_selector_terms)
}

/// All requirements of a term; an empty term matches nothing.
pub(crate) fn matches_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let node_labels = labels(node);
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let by_label = |one: &NodeSelectorRequirement| {
        compares(node_labels.get(&one.key), &one.operator, values(one))
    };
    let by_field = |one: &NodeSelectorRequirement| {
        assert_eq!(one.key, NAME);
        compares(Some(&name(node).to_owned()), &one.operator, values(one))
    };
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(by_label)
        && fields.iter().all(by_field)
}

pub(crate) fn values(requirement: &NodeSelectorRequirement) -> &[String] {
    requirement.values.as_deref().unwrap_or_default()
}

/// `NotIn` and `DoesNotExist` also match what lacks the key. `Gt` and `Lt` compare integers.
fn compares(present: Option<&String>, operator: &str, values: &[String]) -> bool {
    let number = |text: &String| text.parse::<i64>().ok();
    let numbers = || Some((number(present?)?, number(values.first()?)?));
    match operator {
        "In" => present.is_some_and(|value| values.contains(value)),
        "NotIn" => !present.is_some_and(|value| values.contains(value)),
        "Exists" => present.is_some(),
        "DoesNotExist" => present.is_none(),
        "Gt" => numbers().is_some_and(|(present, bound)| present > bound),
        "Lt" => numbers().is_some_and(|(present, bound)| present < bound),
        other => panic!("operator {other}"),
    }
}
