//! A body of a call whose messages are traced while they pass.

use bytes::{Buf, Bytes, BytesMut};
use http_body::Frame;
use tonic::{Status, body::Body, codegen::http::HeaderMap};

use super::{
    super::observed::{Observer, observed},
    Call, Part,
};

/// Bytes before each message of gRPC: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// The observer of one direction of a call.
#[derive(Debug)]
pub(super) struct Tap {
    call: Call,
    responses: bool,
    /// An incomplete message, with its prefix.
    pending: BytesMut,
}

impl Tap {
    pub(super) fn requests(call: Call) -> Self {
        Self::new(call, false)
    }

    pub(super) fn responses(call: Call) -> Self {
        Self::new(call, true)
    }

    fn new(call: Call, responses: bool) -> Self {
        Self {
            call,
            responses,
            pending: BytesMut::new(),
        }
    }

    /// The body, observed.
    pub(super) fn on(self, body: Body) -> Body {
        observed(body, self)
    }

    fn data(&mut self, data: &[u8]) {
        self.pending.extend_from_slice(data);
        while let Some(message) = next_message(&mut self.pending) {
            self.call.part(if self.responses {
                Part::Response(&message)
            } else {
                Part::Request(&message)
            });
        }
    }

    fn trailers(&self, trailers: &HeaderMap) {
        if self.responses {
            self.call.end(trailers);
        }
    }
}

/// Splits the first message off, if it is complete.
fn next_message(pending: &mut BytesMut) -> Option<Bytes> {
    let length = pending.get(1..PREFIX_BYTES)?.get_u32();
    let end = PREFIX_BYTES + usize::try_from(length).ok()?;
    if pending.len() < end {
        return None;
    }
    let mut message = pending.split_to(end).freeze();
    message.advance(PREFIX_BYTES);
    Some(message)
}

impl Observer for Tap {
    fn frame(&mut self, frame: Option<&Result<Frame<Bytes>, Status>>) {
        let Some(Ok(frame)) = frame else {
            return;
        };
        if let Some(data) = frame.data_ref() {
            self.data(data);
        } else if let Some(trailers) = frame.trailers_ref() {
            self.trailers(trailers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_whatever_the_pieces() {
        let bytes = b"\0\0\0\0\x02ab\0\0\0\0\0\0\0\0\0\x01c";
        for size in 1..bytes.len() {
            let (mut pending, mut found) = (BytesMut::new(), Vec::new());
            for piece in bytes.chunks(size) {
                pending.extend_from_slice(piece);
                while let Some(message) = next_message(&mut pending) {
                    found.push(message);
                }
            }
            assert_eq!(found, ["ab", "", "c"], "pieces of {size}");
            assert!(pending.is_empty());
        }
    }
}
