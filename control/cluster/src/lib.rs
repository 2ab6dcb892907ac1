//! The cluster's objects: their types, their keys in the store, the typed client that reads and
//! writes them, and the reflector that maintains a view of them in memory. No other package calls
//! the etcd API directly.
#![forbid(unsafe_code)]

pub mod app;
pub mod claim;
pub mod client;
pub mod decode;
pub mod events;
mod key;
mod object;
mod period;
pub mod reflector;
pub mod validate;
pub mod view;
pub mod vip;

pub use app::{App, AppSpec, AppStatus, Metric, Mode, Protocol, Scale, State};
pub use client::{Client, ClientError, Guard, List};
pub use decode::{FieldError, decode_strict};
pub use key::Key;
pub use object::Object;
pub use period::{PERIOD_MAX, Period, PeriodError};
pub use view::{Change, View};
pub use vip::{VipError, VipIndex, VipRange};
