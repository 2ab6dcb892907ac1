//! How many pods an app should have, and whether requests go straight to them: Knative's autoscaler (KPA) as pure functions.
//!
//! Nothing here knows a clock, a task or a pod object: samples and times come in, numbers with their reasons come out.
//! The recorded answers of Knative's own code are the oracle (`tests/kpa_vectors`).
#![forbid(unsafe_code)]

pub mod settings;
pub mod window;

pub mod delay;

pub mod decider;
pub mod decision;

pub mod kpa;

mod number;

pub use decider::{Decider, NoDecision, Stat, Status};
pub use decision::Decision;
pub use kpa::Reconciler;
pub use settings::{Metric, Settings};
pub use window::Aggregation;
