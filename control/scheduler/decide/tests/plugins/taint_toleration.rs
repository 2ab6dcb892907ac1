//! TaintToleration: no taint but those that the pod tolerates; the fewer it would rather avoid, the better.
//!
//! Sources: "Taints and Tolerations"; the API reference of Toleration (kubernetes.io).

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, array, cluster, incoming, one_of, spec};
use crate::reference::{Column, Reference, check};

pub(crate) struct TaintToleration;

impl Reference for TaintToleration {
    fn plugin(&self) -> Plugin {
        Plugin::TaintToleration
    }

    fn filter(&self, _cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        let is_hard = |taint: &&Taint| taint.effect != "PreferNoSchedule";
        let mut hard = taints(node).iter().filter(is_hard);
        let is_rejected = hard.any(|taint| !is_tolerated(pod, taint));
        is_rejected.then_some(Code::UnschedulableAndUnresolvable)
    }

    fn score(&self, _cluster: &Cluster, pod: &Pod, feasible: &[&Node]) -> Option<Column> {
        let is_soft = |taint: &&Taint| taint.effect == "PreferNoSchedule";
        let intolerable = |node: &&Node| {
            let soft = taints(node).iter().filter(is_soft);
            i64::try_from(soft.filter(|taint| !is_tolerated(pod, taint)).count()).unwrap()
        };
        Some(Column::proportional(
            feasible.iter().map(intolerable).collect(),
            true,
        ))
    }
}

pub(crate) fn taints(node: &Node) -> &[Taint] {
    node.spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
}

pub(crate) fn is_tolerated(pod: &Pod, taint: &Taint) -> bool {
    spec(pod)
        .tolerations
        .iter()
        .flatten()
        .any(|toleration| tolerates(toleration, taint))
}

/// An empty effect is every effect, an empty key with `Exists` every key; `Equal` is the default operator.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    let is_of_value = match text(&toleration.operator).as_str() {
        "Exists" => true,
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        other => panic!("operator {other}"),
    };
    (effect.is_empty() || effect == taint.effect)
        && (key.is_empty() || key == taint.key)
        && is_of_value
}

const KEYS: &[&str] = &["a", "b", "node.kubernetes.io/unschedulable"];
const VALUES: &[&str] = &["", "x", "y"];
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn toleration() -> impl Strategy<Value = Value> {
    let effect = prop_oneof![1 => Just(""), 2 => one_of(EFFECTS)];
    let rest = prop_oneof![
        6 => (one_of(KEYS), one_of(&["", "Equal"]), one_of(VALUES)).prop_map(
            |(key, operator, value)| json!({"key": key, "operator": operator, "value": value})),
        3 => one_of(KEYS).prop_map(|key| json!({"key": key, "operator": "Exists"})),
        1 => Just(json!({"operator": "Exists"})),
    ];
    (effect, rest).prop_map(|(effect, mut toleration)| {
        toleration["effect"] = effect.into();
        toleration
    })
}

/// A template of a pod that tolerates.
pub(crate) fn pod() -> impl Strategy<Value = Value> {
    array(toleration(), 4).prop_map(|tolerations| json!({"spec": {"tolerations": tolerations}}))
}

/// A template of a node with taints.
pub(crate) fn node() -> impl Strategy<Value = Value> {
    let effect = prop_oneof![4 => Just("PreferNoSchedule"), 1 => one_of(EFFECTS)];
    let taint = (one_of(KEYS), one_of(VALUES), effect)
        .prop_map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}));
    array(taint, 4).prop_map(|taints| json!({"spec": {"taints": taints}}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn taints_are_tolerated_as_documented(
        cluster in cluster(node(), Just(json!({}))),
        pod in incoming(pod()),
    ) {
        check(&TaintToleration, &Value::Null, &cluster, &pod)?;
    }
}
