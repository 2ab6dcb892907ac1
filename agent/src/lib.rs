//! The node agent: joins the data path, the pod network and the fleet stream in one process.
//!
//! Reading order: the sources of desired state ([`source`]), the Node object ([`own_node`], [`node_status`]), Services ([`services_sync`], [`health`], [`host_ports`]), neighbour discovery
//! for pods ([`ndp`], [`profile`], [`metadata`]), the CNI socket ([`cni`], [`offline`]) and its installation ([`install`]), denied sources ([`deny`]), the pods' processes ([`runtime`]) and their capabilities (`capabilities`), the rights that the agent gives up (`confinement`), the loop that
//! joins them ([`node`]), [`readiness`], [`metrics`], the commands ([`cli`]), the checks of the machine ([`doctor`]), what kube-proxy leaves ([`leftovers`]), and the removal of it
//! all ([`uninstall`]). Maps and programs are
//! in `agent/datapath`, the pod network in `agent/pod`, inspection in `agent/inspect`.

#![forbid(unsafe_code)]

mod addresses;
mod capabilities;
pub mod cli;
pub mod cni;
mod confinement;
pub mod deny;
pub mod doctor;
pub mod health;
pub mod host_ports;
pub mod install;
pub mod leftovers;
pub mod metadata;
pub mod metrics;
pub mod ndp;
pub mod node;
pub mod node_status;
pub mod offline;
pub mod own_node;
pub mod profile;
pub mod readiness;
mod regular_file;
pub mod runtime;
pub mod services_sync;
pub mod source;
pub mod uninstall;
