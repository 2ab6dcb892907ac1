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

mod balanced_allocation;
mod image_locality;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_fit;
mod taint_toleration;
