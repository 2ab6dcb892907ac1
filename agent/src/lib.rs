//! The node agent: loads the data path, connects and runs pods, and follows control's fleet stream.
//!
//! Reading order: maps and programs ([`datapath`]), the pod network ([`pod`], [`cni`], [`offline`]), its advertisement to the
//! network ([`ndp`], [`profile`]), the pods' processes ([`runtime`]), the sources of desired state ([`source`]), the loop that
//! joins them ([`node`]), inspection ([`see`]) and removal ([`uninstall`]).

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
