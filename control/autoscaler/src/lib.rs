//! Knative's pod autoscaler (KPA) as pure functions: the scale of an app, and whether the activator is in its path.
//!
//! Metrics and times are arguments, decisions with the values behind them are the results: no clock, no task, no pod
//! object. Golden vectors recorded from Knative's code are the oracle (`tests/kpa_vectors`).
#![forbid(unsafe_code)]

pub mod settings;
pub mod window;

pub mod delay;

pub mod decider;
pub mod decision;

pub mod kpa;
pub mod path;

mod number;

pub use decider::{Decider, NoDecision, Stat, Status};
pub use decision::Decision;
pub use kpa::Reconciler;
pub use settings::{Metric, Settings};
pub use window::Aggregation;
