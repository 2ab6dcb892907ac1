//! One model of the cluster: the objects, the key each lives under, the view folded from them, and
//! the one way to read and write them, so that no other part speaks to the store by hand.
#![forbid(unsafe_code)]

pub mod app;
pub mod claim;
pub mod client;
pub mod decode;
pub mod events;
mod key;
mod object;
mod period;
pub mod source;
pub mod validate;
pub mod view;
pub mod vip;

pub use app::{App, AppSpec, AppStatus, Metric, Mode, Protocol, Scale, State};
pub use client::{Client, ClientError, Guard, List, Watched};
pub use decode::{FieldError, decode_strict};
pub use key::Key;
pub use object::Object;
pub use period::{PERIOD_MAX, Period, PeriodError};
pub use view::{Change, View};
pub use vip::{VipError, VipIndex, VipRange};
