//! The changes of a Node object by which pods can be scheduled to the node. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use serde_json::{Value, json};

use crate::source::kubernetes::{Method, Write};

/// The taint of a node whose agent is not ready yet. Programs that create nodes set it (`--register-with-taints` of kubelet).
const TAINT: &str = "dormouse.dev/agent-not-ready";
/// The condition's type: its status True keeps pods away, by a taint that Kubernetes derives.
const CONDITION: &str = "NetworkUnavailable";
/// The condition's reason, by a cloud's route controller, while the network has no route to the node's pods.
const NO_ROUTE: &str = "NoRouteCreated";

/// The writes that are needed, with their names for the log. `owns_condition`: no other program sets the condition.
pub(super) fn writes(
    node: &Node,
    owns_condition: bool,
    now: Timestamp,
) -> Vec<(&'static str, Write)> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let path = format!("/api/v1/nodes/{name}");
    let condition = owns_condition && !is_available(node);
    let condition = condition.then(|| Write {
        method: Method::Merge,
        path: format!("{path}/status"),
        body: available(now),
    });
    let untainted = without_taint(node).map(|body| Write {
        method: Method::Patch,
        path,
        body,
    });
    let condition = condition.map(|write| ("the condition NetworkUnavailable is False", write));
    let untainted =
        untainted.map(|write| ("the taint of an agent that is not ready is removed", write));
    condition.into_iter().chain(untainted).collect()
}

/// Whether a route controller says that the network has no route to the node's pods.
pub(super) fn awaits_route(node: &Node) -> bool {
    condition(node).is_some_and(|condition| {
        condition.status == "True" && condition.reason.as_deref() == Some(NO_ROUTE)
    })
}

fn is_available(node: &Node) -> bool {
    condition(node).is_some_and(|condition| condition.status == "False")
}

fn condition(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == CONDITION)
}

/// A strategic merge patch: conditions are merged by their types.
fn available(now: Timestamp) -> Value {
    let now = format!("{now:.0}");
    json!({"status": {"conditions": [{
        "type": CONDITION,
        "status": "False",
        "reason": "DormouseIsReady",
        "message": "dormouse-agent wires pods and serves Services",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }]}})
}

/// A JSON patch, since taints have no merge key: each removal is of the very taint that was seen at its index, or of none.
fn without_taint(node: &Node) -> Option<Value> {
    let taints = node.spec.as_ref()?.taints.as_ref()?;
    // From the end: a removal does not move those before.
    let ours = taints
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, taint)| taint.key == TAINT);
    let operations: Vec<_> = ours
        .flat_map(|(index, taint)| removal(index, taint))
        .collect();
    (!operations.is_empty()).then_some(Value::Array(operations))
}

fn removal(index: usize, taint: &Taint) -> [Value; 2] {
    let path = format!("/spec/taints/{index}");
    [
        json!({"op": "test", "path": path, "value": taint}),
        json!({"op": "remove", "path": path}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    fn all(node: &Node, owns: bool) -> Vec<Write> {
        let writes = writes(node, owns, Timestamp::UNIX_EPOCH).into_iter();
        writes.map(|(_, write)| write).collect()
    }

    #[test]
    fn a_node_that_is_available_and_untainted_is_not_written() {
        let conditions = json!([{"type": CONDITION, "status": "False", "reason": "FlannelIsUp"}]);
        let ready = node(json!({
            "metadata": {"name": "n1"},
            "spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]},
            "status": {"conditions": conditions},
        }));
        assert_eq!(all(&ready, true), []);
    }

    #[test]
    fn the_condition_is_merged_unless_it_is_another_plugins() {
        for conditions in [json!([]), json!([{"type": CONDITION, "status": "True"}])] {
            let new =
                node(json!({"metadata": {"name": "n1"}, "status": {"conditions": conditions}}));
            assert_eq!(all(&new, false), []);
            let [write] = &all(&new, true)[..] else {
                panic!("one write");
            };
            assert_eq!(
                (write.method, &*write.path),
                (Method::Merge, "/api/v1/nodes/n1/status")
            );
            let condition = &write.body["status"]["conditions"][0];
            assert_eq!(
                (&condition["type"], &condition["status"]),
                (&json!(CONDITION), &json!("False"))
            );
            assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:00Z");
        }
    }

    #[test]
    fn a_route_is_awaited_while_a_route_controller_says_that_there_is_none() {
        let awaits = |conditions: Value| {
            let node = json!({"metadata": {"name": "n1"}, "status": {"conditions": conditions}});
            awaits_route(&self::node(node))
        };
        let condition = |status, reason| {
            awaits(json!([
                {"type": "Ready", "status": "True"},
                {"type": CONDITION, "status": status, "reason": reason},
            ]))
        };
        assert!(condition("True", NO_ROUTE));
        assert!(!condition("False", NO_ROUTE) && !condition("True", "CalicoIsDown"));
        assert!(!awaits(json!([])));
    }

    #[test]
    fn only_the_own_taints_are_removed_each_with_a_test_of_what_was_seen() {
        let tainted = node(json!({
            "metadata": {"name": "n1"},
            "spec": {"taints": [
                {"key": TAINT, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
                {"key": "other", "value": "v", "effect": "NoSchedule"},
                {"key": TAINT, "effect": "NoSchedule"},
            ]},
        }));
        let [write] = &all(&tainted, false)[..] else {
            panic!("one write");
        };
        assert_eq!(
            (write.method, &*write.path),
            (Method::Patch, "/api/v1/nodes/n1")
        );
        let first =
            json!({"key": TAINT, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
        assert_eq!(
            write.body,
            json!([
                {"op": "test", "path": "/spec/taints/2", "value": {"key": TAINT, "effect": "NoSchedule"}},
                {"op": "remove", "path": "/spec/taints/2"},
                {"op": "test", "path": "/spec/taints/0", "value": first},
                {"op": "remove", "path": "/spec/taints/0"},
            ])
        );
    }
}
