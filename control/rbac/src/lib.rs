//! Authorization: Kubernetes' RBAC over its own types, the rights of nodes, and the policy that exists from the start. Pure: objects and
//! attributes in, decisions out.
#![forbid(unsafe_code)]

mod aggregation;
mod attributes;
pub mod builtin;
mod decision;
mod escalation;
mod node;
mod policy;
mod rule;
mod user;

pub use aggregation::aggregated;
pub use attributes::{Attributes, Resource, Target};
pub use decision::{Decision, decide};
pub use escalation::{describe, missing};
pub use node::{Access, access, is_bound_to, node_of};
pub use policy::Policy;
pub use rule::allows;
pub use user::{
    ANONYMOUS, AUTHENTICATED, CONTROL, MASTERS, MONITORING, NODES, UNAUTHENTICATED, User,
    service_account,
};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
