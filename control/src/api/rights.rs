//! Rights: the user of a request, what the request does, whether the user may, and the requests with which users ask that.

pub(super) mod attributes;
pub(super) mod audit;
pub(super) mod authentication;
mod browser;
pub(super) mod budget;
pub(super) mod ending;
pub(super) mod escalation;
pub(super) mod gate;
mod impersonation;
pub(super) mod origin;
pub(super) mod policy;
pub(super) mod review;

use dormouse_cluster::Key;
use dormouse_rbac::{Attributes, Decision, Target, User, decide, is_bound_to, node_of};
use k8s_openapi::api::core::v1::Pod;

use super::{Api, Failure, storage};

/// Whether a user may send a request, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    pub(super) reason: String,
}

impl Verdict {
    /// The reason for which the user may send the request; the failure that answers it if the user may not.
    pub(super) fn required(self, user: &User, attributes: &Attributes) -> Result<String, Failure> {
        if self.allowed {
            return Ok(self.reason);
        }
        let (user, reason) = (&user.name, &self.reason);
        Err(Failure::unauthorized_action(user, attributes, reason))
    }
}

/// Decides on a request. Only a node's request for a pod reads the store.
pub(super) async fn authorize(
    api: &Api,
    user: &User,
    attributes: &Attributes,
) -> Result<Verdict, Failure> {
    let decision = decide(&api.policy.read(), user, attributes);
    let (allowed, reason) = match decision {
        Decision::Allow(reason) => (true, reason),
        Decision::AllowIfBound(node) if is_its(api, &node, attributes).await? => {
            (true, format!("node {node:?}"))
        }
        Decision::AllowIfBound(node) => {
            let reason = format!("no relationship found between node '{node}' and this object");
            (false, reason)
        }
        Decision::Forbid(_) if !api.policy.is_complete() => {
            let message = "the roles are not read from the store yet: try again in a second";
            return Err(Failure::unavailable(message));
        }
        Decision::Forbid(reason) => (false, reason),
    };
    Ok(Verdict { allowed, reason })
}

/// Fails unless a user may send a request.
pub(super) async fn require(
    api: &Api,
    user: &User,
    attributes: &Attributes,
) -> Result<String, Failure> {
    authorize(api, user, attributes)
        .await?
        .required(user, attributes)
}

/// Whether a request is for a pod of a node.
async fn is_its(api: &Api, node: &str, attributes: &Attributes) -> Result<bool, Failure> {
    let Target::Resource(wanted) = &attributes.target else {
        return Ok(false);
    };
    let key = Key::new(&wanted.namespace, &wanted.name);
    let pod = storage::find::<Pod>(api, &key).await?;
    Ok(pod.is_some_and(|pod| is_bound_to(&pod, node)))
}

/// Fails if a node writes a pod that is not bound to it: the pod of this name may be another one than that of the decision.
pub(super) fn check_pod_of_node(pod: &Pod, user: &User) -> Result<(), Failure> {
    let Some(node) = node_of(user) else {
        return Ok(());
    };
    if is_bound_to(pod, node) {
        return Ok(());
    }
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let why = format!(
        "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
    );
    Err(Failure::forbidden::<Pod>(name, &why))
}
