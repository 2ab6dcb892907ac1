//! Each plugin against a slow reference, which is written from Kubernetes' documentation and not from our code.
//!
//! Reading order: a random cluster ([`cluster`]), the way a reference is compared with an attempt ([`reference`]), then one
//! module for each plugin or family of plugins, and all plugins together.
#![expect(
    clippy::unwrap_used,
    reason = "the objects are written here: a malformed one must fail the test"
)]

mod cluster;
mod quantity;
mod reference;
mod requests;
mod selector;
mod storage;
mod workloads;

mod balanced_allocation;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_fit;
mod node_volume_limits;
mod pod_topology_spread;
mod taint_toleration;
mod volume_binding;
mod volume_restrictions;
mod volume_zone;

mod all_plugins;
