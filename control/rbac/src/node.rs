//! The rights of nodes, as Kubernetes' node authorizer and NodeRestriction have them, and narrower: a node reads its Node and its pods,
//! and all Services and EndpointSlices, and writes the status of the first two and Events.

use k8s_openapi::api::core::v1::Pod;

use crate::{Attributes, NODES, Resource, Target, User};

/// Prefix of a node's user name.
const PREFIX: &str = "system:node:";
const READS: [&str; 3] = ["get", "list", "watch"];
const WRITES: [&str; 2] = ["patch", "update"];

/// Whether a node may send a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// It may.
    Allowed,
    /// It may if the pod is bound to it ([`is_bound_to`]).
    IfBound,
    /// It may not, by its being a node.
    Refused(&'static str),
}

/// The name of the node that a user is.
pub fn node_of(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix(PREFIX)?;
    (!name.is_empty() && user.is_in(NODES)).then_some(name)
}

/// Whether a node may send a request.
pub fn access(node: &str, attributes: &Attributes) -> Access {
    let Target::Resource(resource) = &attributes.target else {
        return Access::Refused("");
    };
    let verb = attributes.verb.as_str();
    let (group, combined) = (resource.group.as_str(), resource.combined());
    match (group, combined.as_ref()) {
        ("", "nodes" | "nodes/status") => own_node(node, verb, resource),
        ("", "pods" | "pods/status") => own_pods(node, verb, resource),
        ("", "services") | ("discovery.k8s.io", "endpointslices") if READS.contains(&verb) => {
            Access::Allowed
        }
        ("", "events") if verb == "create" || WRITES.contains(&verb) => Access::Allowed,
        _ => Access::Refused("a node may not do this"),
    }
}

fn own_node(node: &str, verb: &str, resource: &Resource) -> Access {
    let is_status = resource.subresource == "status";
    let writes_status = is_status && WRITES.contains(&verb);
    let reads = verb == "get" || (!is_status && READS.contains(&verb));
    if !writes_status && !reads {
        return Access::Refused("a node may only read its Node, and write its status");
    }
    if resource.name == node {
        Access::Allowed
    } else {
        Access::Refused(
            "a node may only access its own Node: get it, or list it by the field selector metadata.name",
        )
    }
}

fn own_pods(node: &str, verb: &str, resource: &Resource) -> Access {
    let is_status = resource.subresource == "status";
    match verb {
        "get" => Access::IfBound,
        "patch" | "update" if is_status => Access::IfBound,
        "list" | "watch" if !is_status => {
            let mut fields = resource.fields.iter();
            if fields.any(|(field, value)| field == "spec.nodeName" && value == node) {
                Access::Allowed
            } else {
                Access::Refused(
                    "a node may only list and watch its own pods, by the field selector spec.nodeName",
                )
            }
        }
        _ => Access::Refused("a node may only read its pods, and write their status"),
    }
}

/// Whether a pod is bound to a node.
pub fn is_bound_to(pod: &Pod, node: &str) -> bool {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.node_name.as_deref()) == Some(node)
}
