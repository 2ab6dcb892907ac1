//! The cluster's objects: their types, their keys in the store, the typed client that reads and
//! writes them, and the reflector that delivers their changes. No other package calls
//! the etcd API directly.
#![forbid(unsafe_code)]

pub mod app;
pub mod autoscaler_config;
mod change;
pub mod channel;
pub mod children;
pub mod claim;
pub mod client;
pub mod decode;
pub mod events;
pub mod follow;
pub mod history;
mod key;
mod object;
mod period;
pub mod pod;
pub mod quantity;
pub mod reflector;
pub mod revision;
pub mod service;
mod uid;
pub mod validate;
pub mod vip;

pub use app::{
    App, AppSpec, AppStatus, Autoscaling, Metric, Mode, Protocol, Scale, State, Sticky, StoredApp,
    Template, TrafficStatus, TrafficTarget,
};
pub use change::Change;
pub use channel::Channel;
pub use client::{Client, ClientError, Guard, List};
pub use decode::{FieldError, decode_strict};
pub use key::Key;
pub use object::Object;
pub use period::{PERIOD_MAX, Period, PeriodError};
pub use revision::{Revision, RevisionSpec};
pub use service::{ServiceRanges, Services};
pub use uid::random_uid;
pub use vip::{VipError, VipIndex, VipRange};
