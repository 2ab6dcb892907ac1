//! The apps controller: wakes apps, scales their pods with the load, switches their VIPs between proxy and serve mode, and
//! puts them to sleep.
//!
//! Pure: one app ([`record`]) and its plan ([`plan`]), sleeping apps ([`sleep`]), the apps of one shard and the handling of
//! events ([`apps`]), nodes and pods ([`inventory`]), and what concerns which shard ([`dispatch`]). With I/O: the loops
//! ([`controller`]) and the execution of actions ([`actuator`]). Cost follows change: a sleeping app has no timer, and a
//! tick visits awake apps only.
#![forbid(unsafe_code)]

pub mod action;
pub mod event;

mod config;

mod settings;

mod backoff;

mod pod;

mod nodes;

mod member;

mod readiness;

mod decisions;

mod record;

mod rolled_out;
mod rollout;

mod progress;

mod traffic;

mod sleep;
mod slept;

mod plan;

mod admission;

mod allowance;

mod wake;

pub mod apps;

mod inventory;

mod shards;

mod dispatch;

mod ports;

mod shared;

mod explain;

mod metrics;

pub mod epoch;

mod actuator;

mod controller;

#[cfg(test)]
mod simulation;

pub use admission::{Limits, Shares};
pub use config::Config;
pub use controller::{Handle, Parts, start};
pub use pod::owner_of;
pub use settings::TICK;
