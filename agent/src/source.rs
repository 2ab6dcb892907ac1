//! Sources of a node's desired state: control's fleet stream, and a folder of Kubernetes manifests.

pub mod fleet;
pub mod fleet_logs;
pub mod fleet_state;
pub mod manifests;
