//! The node's shell: joins the data path, the pod network and the fleet stream in one process.
//!
//! Reading order: where the node learns what to do ([`source`]), Services ([`services_sync`], [`health`]), how the network
//! finds pods ([`ndp`], [`profile`]), the CNI socket ([`cni`], [`offline`]), how pods are run ([`runtime`]), the loop that
//! joins them ([`node`]), its [`metrics`], the commands ([`cli`]), and how it goes again ([`uninstall`]). The kernel's half
//! is in `agent/datapath`, the pod network in `agent/pod`, the read-only views in `agent/inspect`.

#![forbid(unsafe_code)]

pub mod cli;
pub mod cni;
pub mod health;
pub mod metrics;
pub mod ndp;
pub mod node;
pub mod offline;
pub mod profile;
pub mod runtime;
pub mod services_sync;
pub mod source;
pub mod uninstall;
