//! An HTTP proxy's hop: forwards one request to one backend that the caller has chosen.
//!
//! [`Outbound`] is a request prepared for forwarding, [`Backend`] the connections to one pod, and [`forward`] sends the
//! one over the other. The protocol is kept: HTTP/1.1 is forwarded as HTTP/1.1 and h2c as h2c, because a client that
//! uses h2c with prior knowledge knows that its app supports it. The caller decides about retries and timeouts:
//! [`Failure`] returns a request of which nothing has reached a backend.
#![forbid(unsafe_code)]

mod error;
mod forward;

mod hop;
mod outbound;
mod upload;

mod backend;
mod connection_limit;
mod http2;
mod pod_stream;
pub mod shared_tcp;

mod relay;
mod splice;

pub use backend::{Backend, Limits};
pub use connection_limit::ConnectionLimit;
pub use error::{Failure, ForwardError};
pub use forward::forward;
pub use hop::is_coded;
pub use outbound::Outbound;
pub use relay::{RelayError, Relayed};
pub use upload::Upload;
