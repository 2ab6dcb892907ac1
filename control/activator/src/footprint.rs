//! The memory of a client connection and of a parked request, as the limits count it.
//!
//! The figures are those of the ignored test `memory` in `tests/loopback`, rounded up.

use http::{Request, Version};
use http_body::Body;

use crate::client_stream::Protocol;
use crate::connection::HTTP2_STREAM_WINDOW_BYTES;

/// A connection that has sent nothing.
pub(crate) const OPEN_BYTES: usize = 4 * 1024;
/// What an HTTP/1.1 connection needs besides: the read buffer and the parser's state, while a head is incomplete.
const OPEN_HTTP1_BYTES: usize = 20 * 1024;
/// What an HTTP/2 connection without streams needs besides.
const OPEN_HTTP2_BYTES: usize = 16 * 1024;
/// An HTTP/1.1 request, with the begin of its body.
const HTTP1_BYTES: usize = 4 * 1024;
/// An HTTP/2 request without its body.
const HTTP2_BYTES: usize = 16 * 1024;
/// A field besides its name and value: its entry in the map and in the map's index.
const FIELD_BYTES: usize = 128;

/// Memory of a connection besides [`OPEN_BYTES`], as soon as its protocol is known.
pub(crate) fn of_protocol(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Http1 => OPEN_HTTP1_BYTES,
        Protocol::Http2 => OPEN_HTTP2_BYTES,
    }
}

/// Memory of a request while it is parked, besides its connection's.
pub(crate) fn bytes<B: Body>(request: &Request<B>) -> usize {
    let path = request.uri().path_and_query();
    let path = path.map_or(0, |path| path.as_str().len());
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
    base(request) + path + fields.sum::<usize>()
}

fn base<B: Body>(request: &Request<B>) -> usize {
    if request.version() != Version::HTTP_2 {
        HTTP1_BYTES
    } else if request.body().is_end_stream() {
        HTTP2_BYTES
    } else {
        // The client sends its body until the window is full.
        HTTP2_BYTES + HTTP2_STREAM_WINDOW_BYTES as usize
    }
}
