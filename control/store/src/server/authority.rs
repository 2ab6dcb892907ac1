//! Tolerance of malformed `:authority` headers. Clients in Go send the address of their endpoint there,
//! which is not a host and port for some: `http://[::1]:2379` from etcdctl 3.4, `::1` from any client
//! over TLS. etcd ignores the header; h2 resets the stream with PROTOCOL_ERROR before a service sees
//! the request. So the header is replaced in the stream of bytes before h2 reads it.

mod header_block;

use bytes::BytesMut;

/// The start of every HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame's header: length, type, flags, stream (RFC 9113, section 4.1).
const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
/// Bytes of the longest frame that h2 accepts by default; a longer one ends the connection.
const FRAME_BYTES_MAX: usize = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Preface,
    Frame,
    /// Inside a frame without headers, of which so many bytes follow.
    Payload(usize),
    /// Nothing is replaced: not HTTP/2, or a client with a valid header.
    Transparent,
}

/// The filter of what one client sends. After a first request with a valid header it is transparent, so
/// that most connections cost nothing more.
#[derive(Debug)]
pub(super) struct Filter {
    state: State,
    /// A request with a malformed header was seen.
    replaces: bool,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            state: State::Preface,
            replaces: false,
        }
    }
}

impl Filter {
    /// Whether all further bytes pass unchanged.
    pub(super) fn is_transparent(&self) -> bool {
        self.state == State::Transparent
    }

    /// Moves bytes of the client from `input` to `output`. A part of a frame with headers remains in
    /// the input until the rest follows.
    pub(super) fn pass(&mut self, input: &mut BytesMut, output: &mut BytesMut) {
        while !input.is_empty() && self.step(input, output) {}
    }

    /// One step; returns whether it moved something.
    fn step(&mut self, input: &mut BytesMut, output: &mut BytesMut) -> bool {
        match self.state {
            State::Preface => self.preface(input, output),
            State::Frame => self.frame(input, output),
            State::Payload(left) => {
                let moved = left.min(input.len());
                output.unsplit(input.split_to(moved));
                self.state = match left - moved {
                    0 => State::Frame,
                    left => State::Payload(left),
                };
                true
            }
            State::Transparent => {
                output.unsplit(input.split());
                true
            }
        }
    }

    fn preface(&mut self, input: &mut BytesMut, output: &mut BytesMut) -> bool {
        let compared = PREFACE.len().min(input.len());
        if input[..compared] != PREFACE[..compared] {
            self.state = State::Transparent;
        } else if compared == PREFACE.len() {
            output.unsplit(input.split_to(compared));
            self.state = State::Frame;
        } else {
            return false;
        }
        true
    }

    fn frame(&mut self, input: &mut BytesMut, output: &mut BytesMut) -> bool {
        if input.len() < FRAME_HEADER_BYTES {
            return false;
        }
        let length =
            usize::from(input[0]) << 16 | usize::from(input[1]) << 8 | usize::from(input[2]);
        if input[3] != HEADERS || length > FRAME_BYTES_MAX {
            output.unsplit(input.split_to(FRAME_HEADER_BYTES));
            self.state = if length == 0 {
                State::Frame
            } else {
                State::Payload(length)
            };
            return true;
        }
        if input.len() < FRAME_HEADER_BYTES + length {
            return false;
        }
        let header = input.split_to(FRAME_HEADER_BYTES);
        let payload = input.split_to(length);
        self.headers(&header, &payload, output);
        true
    }

    fn headers(&mut self, header: &[u8], payload: &[u8], output: &mut BytesMut) {
        let flags = header[4];
        if let Some(replaced) = header_block::with_valid_authority(flags, payload) {
            self.replaces = true;
            output.extend_from_slice(&(replaced.len() as u64).to_be_bytes()[5..]);
            output.extend_from_slice(&header[3..]);
            output.extend_from_slice(&replaced);
            return;
        }
        output.extend_from_slice(header);
        output.extend_from_slice(payload);
        if !self.replaces {
            self.state = State::Transparent;
        }
    }
}

#[cfg(test)]
mod tests;
