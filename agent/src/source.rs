//! Sources of a node's desired state: control's fleet stream, and for Services a Kubernetes API server or a folder of
//! Kubernetes manifests.

pub mod fleet;
pub mod fleet_logs;
pub mod fleet_state;
pub mod kubernetes;
pub mod manifests;
pub mod object;
