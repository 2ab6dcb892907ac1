//! The memory of a parked request, as the budgets count it.
//!
//! The figures are those of the ignored test `memory` in `tests/loopback`, rounded up.

use http::{Request, Version};
use http_body::Body;

use crate::connection::HTTP2_STREAM_WINDOW_BYTES;

/// An HTTP/1.1 request with its connection: tasks and the read buffer, in which the begin of a body is.
const HTTP1_BYTES: usize = 24 * 1024;
/// An HTTP/2 request with a connection of its own, without its body: further requests of the connection need less.
const HTTP2_BYTES: usize = 36 * 1024;
/// A field besides its name and value: its entry in the map and in the map's index.
const FIELD_BYTES: usize = 128;

/// Memory of a request and its connection while it is parked.
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
