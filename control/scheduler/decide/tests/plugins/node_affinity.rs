//! NodeAffinity: node selectors, and required and preferred terms of the pod and of the profile.
//!
//! Sources: "Assigning Pods to Nodes"; the API reference of NodeAffinity and of NodeAffinityArgs (kubernetes.io).

use std::collections::BTreeSet;

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{
    Node, NodeAffinity as ApiNodeAffinity, NodeSelectorTerm, Pod, PreferredSchedulingTerm,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, array, cluster, incoming, object, one_of, some_of, spec};
use crate::reference::{Column, Reference, check};
use crate::selector::{matches_term, may_be_on, required_terms, values};

/// With the affinity that the profile adds to each pod's.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeAffinity {
    added: ApiNodeAffinity,
}

impl Reference for NodeAffinity {
    fn plugin(&self) -> Plugin {
        Plugin::NodeAffinity
    }

    fn rejects(&self, _cluster: &Cluster, pod: &Pod) -> Option<Code> {
        let names = self.names(pod)?;
        names
            .is_empty()
            .then_some(Code::UnschedulableAndUnresolvable)
    }

    /// Terms that all select nodes by name leave only these.
    fn names(&self, pod: &Pod) -> Option<BTreeSet<String>> {
        let terms = required_terms(pod)?;
        let names: Option<Vec<_>> = terms.iter().map(names_of_term).collect();
        let names: BTreeSet<_> = names?.into_iter().flatten().collect();
        (!terms.is_empty()).then_some(names)
    }

    fn filter(&self, _cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        let added = self
            .added
            .required_during_scheduling_ignored_during_execution
            .as_ref();
        let is_added_met = added.is_none_or(|required| {
            required
                .node_selector_terms
                .iter()
                .any(|term| matches_term(term, node))
        });
        let is_met = is_added_met && may_be_on(pod, node);
        (!is_met).then_some(Code::UnschedulableAndUnresolvable)
    }

    fn score(&self, _cluster: &Cluster, pod: &Pod, feasible: &[&Node]) -> Option<Column> {
        let terms: Vec<_> = preferred(&self.added)
            .chain(own(pod).flat_map(preferred))
            .collect();
        if terms.is_empty() {
            return None;
        }
        let score = |node: &&Node| {
            let matched = terms
                .iter()
                .filter(|term| matches_term(&term.preference, node));
            matched.map(|term| i64::from(term.weight)).sum()
        };
        Some(Column::proportional(
            feasible.iter().map(score).collect(),
            false,
        ))
    }
}

fn own(pod: &Pod) -> impl Iterator<Item = &ApiNodeAffinity> {
    spec(pod)
        .affinity
        .iter()
        .filter_map(|affinity| affinity.node_affinity.as_ref())
}

fn preferred(affinity: &ApiNodeAffinity) -> impl Iterator<Item = &PreferredSchedulingTerm> {
    affinity
        .preferred_during_scheduling_ignored_during_execution
        .iter()
        .flatten()
}

/// The names that a term requires; `None` if it requires none.
fn names_of_term(term: &NodeSelectorTerm) -> Option<BTreeSet<String>> {
    let fields = term
        .match_fields
        .iter()
        .flatten()
        .filter(|field| field.operator == "In");
    let sets = fields.map(|field| values(field).iter().cloned().collect::<BTreeSet<_>>());
    sets.reduce(|one, other| &one & &other)
}

const LABELS: &[(&str, &[&str])] = &[
    ("disk", &["ssd", "hdd", ""]),
    ("gen", &["1", "7", "42", "seven"]),
    ("pool", &["a", "b"]),
];

fn expression() -> impl Strategy<Value = Value> {
    let set = |key, values: &'static [&'static str]| {
        let values = prop::sample::subsequence(values, 1..=values.len());
        (one_of(&["In", "NotIn"]), values).prop_map(
            move |(operator, values)| json!({"key": key, "operator": operator, "values": values}),
        )
    };
    prop_oneof![
        set("disk", &["ssd", "hdd", ""]),
        set("pool", &["a", "b", "c"]),
        set("gen", &["1", "7"]),
        (one_of(&["disk", "gen", "pool", "none"]), one_of(&["Exists", "DoesNotExist"]))
            .prop_map(|(key, operator)| json!({"key": key, "operator": operator})),
        (one_of(&["gen", "disk"]), one_of(&["Gt", "Lt"]), one_of(&["0", "7", "8"])).prop_map(
            |(key, operator, value)| json!({"key": key, "operator": operator, "values": [value]})
        ),
    ]
}

fn field() -> impl Strategy<Value = Value> {
    let operator = prop_oneof![4 => Just("In"), 1 => Just("NotIn")];
    (operator, one_of(&["n0", "n1", "n2", "absent"])).prop_map(
        |(operator, name)| json!({"key": "metadata.name", "operator": operator, "values": [name]}),
    )
}

/// A term; it can be empty.
fn term() -> impl Strategy<Value = Value> {
    let fields = prop_oneof![3 => Just(json!([])), 2 => array(field(), 2)];
    (array(expression(), 2), fields).prop_map(
        |(expressions, fields)| json!({"matchExpressions": expressions, "matchFields": fields}),
    )
}

fn affinity() -> impl Strategy<Value = Value> {
    let required = prop::option::of(prop::collection::vec(term(), 1..4));
    let weighted = (1..=100_u8, term())
        .prop_map(|(weight, term)| json!({"weight": weight, "preference": term}));
    let preferred = prop::option::of(prop::collection::vec(weighted, 1..4));
    (required, preferred).prop_map(|(required, preferred)| {
        let mut affinity = json!({});
        if let Some(terms) = required {
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": terms});
        }
        if let Some(terms) = preferred {
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = terms.into();
        }
        affinity
    })
}

/// A template of a pod that selects nodes.
pub(crate) fn pod() -> impl Strategy<Value = Value> {
    let selector = prop_oneof![4 => Just(json!({})), 1 => some_of(LABELS)];
    (selector, affinity()).prop_map(|(selector, affinity)| {
        json!({"spec": {"nodeSelector": selector, "affinity": {"nodeAffinity": affinity}}})
    })
}

/// A template of a node with labels to select.
pub(crate) fn node() -> impl Strategy<Value = Value> {
    some_of(LABELS).prop_map(|labels| json!({"metadata": {"labels": labels}}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn nodes_are_selected_and_preferred_as_documented(
        added in prop::option::of(affinity()),
        cluster in cluster(node(), Just(json!({}))),
        pod in incoming(pod()),
    ) {
        let args = added.as_ref().map_or(Value::Null, |added| json!({"addedAffinity": added}));
        let added = added.map(object).unwrap_or_default();
        check(&NodeAffinity { added }, &args, &cluster, &pod)?;
    }
}
