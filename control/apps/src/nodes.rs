//! Node objects from what nodes say of themselves.

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use dormouse_fleet::proto;

/// The condition that says whether a node takes pods.
const READY: &str = "Ready";

/// Writes what a node says of itself over its object; returns whether anything changed.
pub(crate) fn up(
    node: &mut Node,
    name: &str,
    said: &proto::NodeStatus,
    boot_id: &str,
    now: Timestamp,
) -> bool {
    let before = node.clone();
    node.metadata.name = Some(name.to_owned());
    node.metadata.creation_timestamp.get_or_insert(Time(now));
    let labels = node.metadata.labels.get_or_insert_default();
    labels.extend(said.labels.clone());
    labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    let spec = node.spec.get_or_insert_default();
    spec.pod_cidr = Some(said.prefix.clone());
    spec.pod_cidrs = Some(vec![said.prefix.clone()]);
    let status = node.status.get_or_insert_default();
    status.addresses = Some(vec![
        address("InternalIP", &said.address),
        address("Hostname", name),
    ]);
    let resources = [
        ("cpu", format!("{}m", said.cpu_milli)),
        ("memory", said.memory_bytes.to_string()),
        ("pods", said.pods.to_string()),
    ];
    let resources = resources.map(|(name, amount)| (name.to_owned(), Quantity(amount)));
    status.capacity = Some(resources.clone().into());
    status.allocatable = Some(resources.into());
    let info = status.node_info.get_or_insert_with(NodeSystemInfo::default);
    boot_id.clone_into(&mut info.boot_id);
    let follows = if said.runs_pods {
        (
            "True",
            "FleetConnected",
            "the node follows the fleet stream",
        )
    } else {
        ("False", "RunsNoPods", "the node follows entries only")
    };
    set_ready(status, follows, now);
    *node != before
}

/// Writes that a node is lost over its object; returns whether anything changed.
pub(crate) fn down(node: &mut Node, now: Timestamp) -> bool {
    let status = node.status.get_or_insert_default();
    set_ready(
        status,
        (
            "Unknown",
            "NoFleet",
            "the node has no fleet stream and its lease is over",
        ),
        now,
    )
}

/// Whether a node object says that it takes pods.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == READY && condition.status == "True")
}

fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress {
        type_: type_.to_owned(),
        address: address.to_owned(),
    }
}

fn set_ready(
    status: &mut NodeStatus,
    (value, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    let found = conditions
        .iter()
        .position(|condition| condition.type_ == READY);
    let before = found.map(|position| conditions.remove(position));
    if let Some(same) = before.filter(|condition| {
        condition.status == value && condition.reason.as_deref() == Some(reason)
    }) {
        conditions.push(same);
        return false;
    }
    conditions.push(NodeCondition {
        type_: READY.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(Time(now)),
        last_heartbeat_time: None,
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_says_the_same_again_changes_nothing_and_one_that_is_lost_is_not_ready() {
        let said = proto::NodeStatus {
            pods: 10,
            cpu_milli: 2_000,
            memory_bytes: 1 << 30,
            runs_pods: true,
            ..Default::default()
        };
        let mut node = Node::default();
        assert!(up(&mut node, "n1", &said, "boot", Timestamp::UNIX_EPOCH));
        assert!(is_ready(&node));
        assert!(!up(&mut node, "n1", &said, "boot", Timestamp::now()));
        assert!(down(&mut node, Timestamp::now()));
        assert!(!down(&mut node, Timestamp::now()));
        assert!(!is_ready(&node));
        assert!(up(&mut node, "n1", &said, "boot", Timestamp::now()));
        assert!(is_ready(&node));
    }
}
