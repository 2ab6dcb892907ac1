//! NodeName and NodeUnschedulable: the node that the pod names, and cordoned nodes.
//!
//! Sources: "Assigning Pods to Nodes: nodeName", "Manual Node administration" (kubernetes.io).

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, cluster, incoming, name, one_of, spec};
use crate::reference::{Reference, check};
use crate::taint_toleration::{self, is_tolerated};

pub(crate) struct NodeName;
pub(crate) struct NodeUnschedulable;

impl Reference for NodeName {
    fn plugin(&self) -> Plugin {
        Plugin::NodeName
    }

    fn filter(&self, _cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        let named = spec(pod)
            .node_name
            .as_deref()
            .filter(|named| !named.is_empty());
        let is_other = named.is_some_and(|named| named != name(node));
        is_other.then_some(Code::UnschedulableAndUnresolvable)
    }
}

impl Reference for NodeUnschedulable {
    fn plugin(&self) -> Plugin {
        Plugin::NodeUnschedulable
    }

    fn filter(&self, _cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        let taint = Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        (is_cordoned && !is_tolerated(pod, &taint)).then_some(Code::UnschedulableAndUnresolvable)
    }
}

/// A template of a node that may be cordoned.
pub(crate) fn node() -> impl Strategy<Value = Value> {
    prop::bool::weighted(0.3)
        .prop_map(|is_cordoned| json!({"spec": {"unschedulable": is_cordoned}}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn only_the_named_node_is_feasible(
        named in one_of(&["", "n0", "n3", "absent"]),
        cluster in cluster(node(), Just(json!({}))),
        mut pod in incoming(Just(json!({}))),
    ) {
        pod.spec.get_or_insert_default().node_name = Some(named.to_owned());
        check(&NodeName, &Value::Null, &cluster, &pod)?;
    }

    #[test]
    fn a_cordoned_node_is_feasible_for_those_who_tolerate_it(
        cluster in cluster(node(), Just(json!({}))),
        pod in incoming(taint_toleration::pod()),
    ) {
        check(&NodeUnschedulable, &Value::Null, &cluster, &pod)?;
    }
}
