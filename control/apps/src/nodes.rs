//! Node objects, from the nodes' own descriptions.

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use dormouse_fleet::proto;

/// The condition of nodes that accept pods.
const READY: &str = "Ready";

/// Labels of Kubernetes that a kubelet gives its own node, and the domains of others.
const OWN_LABELS: [&str; 10] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
];
const OWN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// A node that has opened a fleet stream.
#[derive(Debug, Clone)]
pub(crate) struct ConnectedNode {
    pub(crate) name: String,
    /// Its own description.
    pub(crate) status: proto::NodeStatus,
    pub(crate) boot_id: String,
}

/// Writes a connected node's description into its object; returns whether anything changed.
pub(crate) fn up(node: &mut Node, connected: &ConnectedNode, now: Timestamp) -> bool {
    let ConnectedNode {
        name,
        status: reported,
        boot_id,
    } = connected;
    let before = node.clone();
    node.metadata.name = Some(name.clone());
    node.metadata.creation_timestamp.get_or_insert(Time(now));
    let labels = node.metadata.labels.get_or_insert_default();
    let own = reported.labels.iter().filter(|(label, _)| is_own(label));
    labels.extend(own.map(|(label, value)| (label.clone(), value.clone())));
    labels.insert("kubernetes.io/hostname".to_owned(), name.clone());
    let spec = node.spec.get_or_insert_default();
    spec.pod_cidr = Some(reported.prefix.clone());
    spec.pod_cidrs = Some(vec![reported.prefix.clone()]);
    let status = node.status.get_or_insert_default();
    status.addresses = Some(vec![
        address("InternalIP", &reported.address),
        address("Hostname", name),
    ]);
    let resources = [
        ("cpu", format!("{}m", reported.cpu_milli)),
        ("memory", reported.memory_bytes.to_string()),
        ("pods", reported.pods.to_string()),
    ];
    let resources = resources.map(|(name, amount)| (name.to_owned(), Quantity(amount)));
    status.capacity = Some(resources.clone().into());
    status.allocatable = Some(resources.into());
    let info = status.node_info.get_or_insert_with(NodeSystemInfo::default);
    boot_id.clone_into(&mut info.boot_id);
    // Where clients of Kubernetes look for the version of what runs the pods.
    reported.version.clone_into(&mut info.kubelet_version);
    let ready = if reported.runs_pods {
        Readiness {
            status: "True",
            reason: "FleetConnected",
            message: "the node has a fleet stream",
        }
    } else {
        Readiness {
            status: "False",
            reason: "RunsNoPods",
            message: "the node only follows entries and runs no pods",
        }
    };
    set_ready(status, ready, now);
    *node != before
}

/// Writes into a node's object that the node is lost; returns whether anything changed.
pub(crate) fn down(node: &mut Node, now: Timestamp) -> bool {
    let status = node.status.get_or_insert_default();
    set_ready(
        status,
        Readiness {
            status: "Unknown",
            reason: "NoFleet",
            message: "the node has no fleet stream and its lease has expired",
        },
        now,
    )
}

/// Whether a node may give itself a label. As with Kubernetes' NodeRestriction, it may not with those by which administrators choose the nodes of pods.
fn is_own(label: &str) -> bool {
    let Some((domain, _)) = label.split_once('/') else {
        return true;
    };
    let is_in = |parent: &&str| {
        let rest = domain.strip_suffix(*parent);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let is_kubernetes = ["kubernetes.io", "k8s.io"].iter().any(is_in);
    !is_kubernetes || OWN_LABELS.contains(&label) || OWN_DOMAINS.iter().any(is_in)
}

/// Whether a node object has the condition Ready.
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

/// The condition Ready.
#[derive(Clone, Copy)]
struct Readiness {
    status: &'static str,
    reason: &'static str,
    message: &'static str,
}

fn set_ready(status: &mut NodeStatus, ready: Readiness, now: Timestamp) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    let found = conditions
        .iter()
        .position(|condition| condition.type_ == READY);
    let before = found.map(|position| conditions.remove(position));
    if let Some(same) = before.filter(|condition| {
        condition.status == ready.status && condition.reason.as_deref() == Some(ready.reason)
    }) {
        conditions.push(same);
        return false;
    }
    conditions.push(NodeCondition {
        type_: READY.to_owned(),
        status: ready.status.to_owned(),
        reason: Some(ready.reason.to_owned()),
        message: Some(ready.message.to_owned()),
        last_transition_time: Some(Time(now)),
        last_heartbeat_time: None,
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gives_itself_no_label_by_which_administrators_choose_nodes() {
        for own in [
            "zone",
            "example.org/disk",
            "topology.kubernetes.io/zone",
            "node.kubernetes.io/instance-type",
            "a.node.kubernetes.io/x",
            "notkubernetes.io/x",
        ] {
            assert!(is_own(own), "{own}");
        }
        for others in [
            "node-restriction.kubernetes.io/tenant",
            "a.node-restriction.kubernetes.io/tenant",
            "node-role.kubernetes.io/control-plane",
            "kubernetes.io/secure",
            "x.k8s.io/secure",
        ] {
            assert!(!is_own(others), "{others}");
        }
        let labels = [("kubernetes.io/secure", "y"), ("disk", "ssd")];
        let labels = labels.map(|(label, value)| (label.to_owned(), value.to_owned()));
        let connected = ConnectedNode {
            name: "n1".into(),
            status: proto::NodeStatus {
                labels: labels.into(),
                ..Default::default()
            },
            boot_id: "boot".into(),
        };
        let mut node = Node::default();
        up(&mut node, &connected, Timestamp::UNIX_EPOCH);
        let labels = node.metadata.labels.unwrap();
        let labels: Vec<&str> = labels.keys().map(String::as_str).collect();
        assert_eq!(labels, ["disk", "kubernetes.io/hostname"]);
    }

    #[test]
    fn an_unchanged_description_changes_nothing_and_a_lost_node_is_not_ready() {
        let status = proto::NodeStatus {
            pods: 10,
            cpu_milli: 2_000,
            memory_bytes: 1 << 30,
            runs_pods: true,
            version: "0.1.0".into(),
            ..Default::default()
        };
        let connected = ConnectedNode {
            name: "n1".into(),
            status,
            boot_id: "boot".into(),
        };
        let mut node = Node::default();
        assert!(up(&mut node, &connected, Timestamp::UNIX_EPOCH));
        assert!(is_ready(&node));
        let info = node.status.as_ref().unwrap().node_info.clone();
        assert_eq!(info.unwrap().kubelet_version, "0.1.0");
        assert!(!up(&mut node, &connected, Timestamp::now()));
        assert!(down(&mut node, Timestamp::now()));
        assert!(!down(&mut node, Timestamp::now()));
        assert!(!is_ready(&node));
        assert!(up(&mut node, &connected, Timestamp::now()));
        assert!(is_ready(&node));
    }
}
