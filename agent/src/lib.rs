//! The node's shell: loads the data path, wires and runs pods, and follows control's fleet stream.
//!
//! Reading order: what the kernel does ([`datapath`]), how a pod is wired ([`pod`], [`cni`], [`offline`]), how the network finds it ([`ndp`], [`profile`]), how it is run
//! ([`runtime`]), where the node learns what to do ([`source`]), the loop that joins them ([`node`]), and
//! what people ask of it all ([`see`]), and how it goes again ([`uninstall`]).

#![deny(unsafe_code)]

pub mod cli;
pub mod cni;
pub mod datapath;
pub mod health;
mod held;
pub mod kube;
pub mod metrics;
pub mod ndp;
pub mod node;
pub mod offline;
pub mod pod;
pub mod profile;
pub mod runtime;
pub mod see;
pub mod source;
pub mod uninstall;
