//! Selectors of labels and of nodes.
//!
//! Sources: the API reference of LabelSelector, NodeSelectorTerm and NodeSelectorRequirement; "Assigning Pods to Nodes"
//! (kubernetes.io).

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Labels, array, labels, name, one_of, some_of, spec};

/// The only field of a node that a term can select.
const NAME: &str = "metadata.name";

/// A missing selector selects nothing, an empty one everything.
pub(crate) fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    let mut pairs = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    pairs.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|one| {
            compares(
                labels.get(&one.key),
                &one.operator,
                one.values.as_deref().unwrap_or_default(),
            )
        })
}

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

const VALUES: &[(&str, &[&str])] = &[("app", &["a", "b"]), ("tier", &["x", "y"])];

/// A label selector of the labels `app` and `tier`; it can be empty.
pub(crate) fn random() -> impl Strategy<Value = Value> {
    let expression = (
        one_of(VALUES),
        one_of(&["In", "NotIn", "Exists", "DoesNotExist"]),
        0..2_usize,
    )
        .prop_map(|((key, values), operator, skipped)| match operator {
            "In" | "NotIn" => {
                json!({"key": key, "operator": operator, "values": values[skipped..]})
            }
            _ => json!({"key": key, "operator": operator}),
        });
    let expressions = prop_oneof![3 => Just(json!([])), 1 => array(expression, 2)];
    let pairs = prop_oneof![2 => some_of(VALUES), 1 => Just(json!({"app": "a"}))];
    (pairs, expressions).prop_map(
        |(pairs, expressions)| json!({"matchLabels": pairs, "matchExpressions": expressions}),
    )
}
