//! The decision on a request: by the public paths, then `system:masters`, then the rights of nodes, then RBAC.

use crate::{Access, Attributes, Policy, Target, User, access, node_of};

/// The paths of the health checks, which need no identity.
const PUBLIC: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// A decision, with its reason for the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed.
    Allow(String),
    /// The request is allowed if the pod is bound to the user's node.
    AllowIfBound(String),
    /// No right allows the request.
    Forbid(String),
}

/// Decides on a request.
pub fn decide(policy: &Policy, user: &User, attributes: &Attributes) -> Decision {
    if is_public(attributes) || user.is_master() {
        return Decision::Allow(String::new());
    }
    let mut refused = "";
    let mut bound = None;
    if let Some(node) = node_of(user) {
        match access(node, attributes) {
            Access::Allowed => return Decision::Allow(format!("node {node:?}")),
            Access::IfBound => bound = Some(node),
            Access::Refused(why) => refused = why,
        }
    }
    if let Some(reason) = policy.allows(user, attributes) {
        return Decision::Allow(reason);
    }
    match bound {
        Some(node) => Decision::AllowIfBound(node.to_owned()),
        None => Decision::Forbid(refused.to_owned()),
    }
}

/// Whether a request is allowed to all.
fn is_public(attributes: &Attributes) -> bool {
    matches!(&attributes.target, Target::Path(path) if PUBLIC.contains(&path.as_str()))
}
