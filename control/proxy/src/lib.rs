//! Forwards one HTTP request to one backend, so that whoever chose the backend need not know HTTP.
//!
//! [`Outbound`] is a request made ready to leave, [`Backend`] the connections to one pod,
//! [`forward`] sends one through the other. The protocol of the request is kept: HTTP/1.1 leaves as
//! HTTP/1.1, h2c as h2c, because a client that speaks h2c by prior knowledge knows its app.
//! Which backend, how often and for how long is the caller's business: a request of which nothing
//! has reached a backend is handed back in [`Failure`].
#![forbid(unsafe_code)]

mod forward;

mod hop;
mod outbound;

mod backend;

mod relay;
mod splice;

pub use backend::{Backend, Limits};
pub use forward::{Failure, ForwardError, forward};
pub use outbound::{Outbound, Upload};
pub use relay::{RelayError, Relayed};
