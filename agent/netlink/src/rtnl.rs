//! The routing socket (rtnetlink): many requests in one send. The kernel executes them in order and reports each error; only
//! the last request asks for an acknowledgement, so no error for an earlier one means success.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};

/// A message of the kernel.
pub type Message = NetlinkMessage<RouteNetlinkMessage>;

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The operation, for errors.
    pub what: &'static str,
    /// The message.
    pub message: RouteNetlinkMessage,
    /// Flags besides REQUEST and ACK.
    pub flags: u16,
    /// Error numbers that mean that there was nothing to do.
    pub tolerated: &'static [i32],
}

/// The error of a refused request. Later requests of the batch are executed all the same.
#[derive(Debug, thiserror::Error)]
#[error("failed to {what}")]
pub struct RequestError {
    /// The operation.
    pub what: &'static str,
    /// The kernel's error.
    #[source]
    pub source: io::Error,
}

/// Maximum number of requests in one send. Replies wait in the socket's receive buffer until all are executed.
const SEND_MAX: usize = 64;
/// Receive buffer of a socket in bytes: a link that is read takes up to 9 KB of it with the kernel's own data, 64 of them more than
/// the default. Above it the kernel drops replies.
const RECEIVE_BUFFER_LEN: usize = 2 << 20;
/// Receive buffer for a reply that is not a dump, in bytes: an acknowledgement, or one link.
const ANSWER_LEN_MAX: usize = 32 * 1024;

impl Request {
    /// A request without tolerated errors.
    pub fn new(what: &'static str, message: RouteNetlinkMessage, flags: u16) -> Self {
        Self {
            what,
            message,
            flags,
            tolerated: &[],
        }
    }
}

impl RequestError {
    /// An error of the socket itself.
    pub fn socket(source: io::Error) -> Self {
        Self {
            what: "use the kernel's routing socket",
            source,
        }
    }
}

/// A routing socket, in the network namespace in which it was opened.
#[derive(Debug)]
pub struct Rtnl {
    socket: Socket,
    sequence: u32,
}

impl Rtnl {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        let socket = socket()?;
        setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_LEN)?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Sends all requests and returns the first error.
    pub fn batch(&mut self, requests: &[Request]) -> Result<(), RequestError> {
        let codes = self.carry_out(requests).map_err(RequestError::socket)?;
        first_refusal(requests, &codes)
    }

    /// Sends all requests. Returns the error number of each, 0 for success. An error if a reply is missing: the requests may have been
    /// executed or not.
    pub fn carry_out(&mut self, requests: &[Request]) -> io::Result<Vec<i32>> {
        let done = self.execute(requests);
        if done.is_err() {
            self.discard();
        }
        done
    }

    fn execute(&mut self, requests: &[Request]) -> io::Result<Vec<i32>> {
        let mut codes = Vec::with_capacity(requests.len());
        for requests in requests.chunks(SEND_MAX) {
            let first = self.sequence.wrapping_add(1);
            self.socket.send(&encode(first, requests, Ask::Last), 0)?;
            self.sequence = self.sequence.wrapping_add(count(requests));
            codes.extend(self.acknowledgements(first, requests.len())?);
        }
        Ok(codes)
    }

    /// The kernel executes requests and queues the replies before the send returns: to wait for one that is not there would be to
    /// wait for ever.
    fn acknowledgements(&mut self, first: u32, count: usize) -> io::Result<Vec<i32>> {
        let mut codes = vec![None; count];
        while codes.last().is_some_and(Option::is_none) {
            let bytes = receive_bytes(&self.socket, libc::MSG_DONTWAIT);
            let bytes = bytes.map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => io::Error::other("the kernel dropped a reply"),
                _ => error,
            })?;
            for message in parse(&bytes)? {
                note(&mut codes, first, &message);
            }
        }
        Ok(codes.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Discards the replies that are left. Once some were dropped, the kernel drops all further ones until the socket is empty.
    fn discard(&self) {
        loop {
            match receive_bytes(&self.socket, libc::MSG_DONTWAIT) {
                // That some were dropped is reported once, before what is left.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// All links of the namespace.
    pub fn links(&mut self) -> io::Result<Vec<LinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        append(
            &mut bytes,
            self.sequence,
            NLM_F_REQUEST | NLM_F_DUMP,
            request,
        );
        self.socket.send(&bytes, 0)?;
        let mut links = Vec::new();
        loop {
            for message in receive_dump(&self.socket)? {
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                        links.push(link);
                    }
                    NetlinkPayload::Done(_) => return Ok(links),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    _ => {}
                }
            }
        }
    }
}

/// A socket with NETLINK_CAP_ACK: errors do not quote the request.
pub fn socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.set_cap_ack(true)?;
    Ok(socket)
}

/// The first error, as the error of its request.
pub fn first_refusal(requests: &[Request], codes: &[i32]) -> Result<(), RequestError> {
    for (request, &code) in requests.iter().zip(codes) {
        if code != 0 && !request.tolerated.contains(&code) {
            return Err(RequestError {
                what: request.what,
                source: io::Error::from_raw_os_error(code),
            });
        }
    }
    Ok(())
}

/// The requests of a batch that ask for an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// All requests.
    Each,
    /// The last one; errors of the others are reported all the same.
    Last,
}

/// Serializes requests with sequence numbers from `first` on.
pub fn encode(first: u32, requests: &[Request], ask: Ask) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sequence = first;
    for (index, request) in requests.iter().enumerate() {
        let is_asked = ask == Ask::Each || index + 1 == requests.len();
        let ask = if is_asked { NLM_F_ACK } else { 0 };
        let flags = request.flags | NLM_F_REQUEST | ask;
        append(&mut bytes, sequence, flags, request.message.clone());
        sequence = sequence.wrapping_add(1);
    }
    bytes
}

/// Stores the error number if the message acknowledges a request of the batch.
pub fn note(codes: &mut [Option<i32>], first: u32, message: &Message) {
    if let NetlinkPayload::Error(error) = &message.payload {
        let index = message.header.sequence_number.wrapping_sub(first);
        let code = error.raw_code().saturating_neg();
        if let Some(slot) = usize::try_from(index).ok().and_then(|i| codes.get_mut(i)) {
            *slot = Some(code);
        }
    }
}

fn count(requests: &[Request]) -> u32 {
    u32::try_from(requests.len()).unwrap_or(u32::MAX)
}

/// Receives messages of any length.
fn receive_dump(socket: &Socket) -> io::Result<Vec<Message>> {
    let (bytes, _) = socket.recv_from_full()?;
    parse(&bytes)
}

/// Receives messages that are not a dump.
pub fn receive(socket: &Socket) -> io::Result<Vec<Message>> {
    parse(&receive_bytes(socket, 0)?)
}

/// Like [`receive`], but skips messages that cannot be parsed: a notification can be about any kind of link.
pub fn receive_readable(socket: &Socket) -> io::Result<Vec<Message>> {
    Ok(readable(&receive_bytes(socket, 0)?))
}

fn receive_bytes(socket: &Socket, flags: i32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(ANSWER_LEN_MAX);
    socket.recv(&mut bytes, flags)?;
    Ok(bytes)
}

fn readable(bytes: &[u8]) -> Vec<Message> {
    split(bytes)
        .filter_map(|message| Message::deserialize(message).ok())
        .collect()
}

fn parse(bytes: &[u8]) -> io::Result<Vec<Message>> {
    split(bytes)
        .map(|message| {
            Message::deserialize(message)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
        })
        .collect()
}

/// Splits bytes into messages by the length in each header; bytes without a valid header are the last one.
fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = rest.first_chunk().copied().map(u32::from_ne_bytes)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX).max(4);
        let message = rest.get(..length).unwrap_or(rest);
        let next = length.checked_next_multiple_of(4).unwrap_or(length);
        rest = rest.get(next..).unwrap_or_default();
        Some(message)
    })
}

fn append(bytes: &mut Vec<u8>, sequence: u32, flags: u16, message: RouteNetlinkMessage) {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let start = bytes.len();
    bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
    message.serialize(&mut bytes[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETLINK: u16 = 19;

    fn request(index: u32) -> Request {
        let mut link = LinkMessage::default();
        link.header.index = index;
        Request {
            what: "test",
            message: RouteNetlinkMessage::SetLink(link),
            flags: 0,
            tolerated: &[],
        }
    }

    fn read_loopback() -> Request {
        let mut link = LinkMessage::default();
        link.header.index = 1;
        Request::new("read lo", RouteNetlinkMessage::GetLink(link), 0)
    }

    #[test]
    fn replies_to_as_many_reads_as_one_send_has_fit_the_buffer() {
        let mut rtnl = Rtnl::open().unwrap();
        assert!(rtnl.socket.get_rx_buf_sz().unwrap() > SEND_MAX * 9 * 1_024);
        rtnl.batch(&vec![read_loopback(); SEND_MAX]).unwrap();
    }

    #[test]
    fn a_reply_that_was_dropped_is_an_error_and_the_next_requests_are_answered() {
        let mut rtnl = Rtnl::open().unwrap();
        rtnl.socket.set_rx_buf_sz(1_i32).unwrap();
        let dropped = rtnl.batch(&vec![read_loopback(); SEND_MAX]).unwrap_err();
        assert_eq!(dropped.source.raw_os_error(), Some(libc::ENOBUFS));
        rtnl.batch(&[request(1)]).unwrap();
        rtnl.socket.set_rx_buf_sz(1_i32 << 16).unwrap();
        rtnl.batch(&[read_loopback()]).unwrap();
    }

    #[test]
    fn an_unreadable_message_does_not_hide_the_others() {
        // RTM_NEWLINK without its mandatory header.
        let mut broken = 20_u32.to_ne_bytes().to_vec();
        broken.extend(SETLINK.to_ne_bytes());
        broken.resize(20, 0);
        let good = |number| encode(number, &[request(number)], Ask::Each);
        let bytes = [good(7), broken, good(8), vec![1, 0]].concat();
        assert!(parse(&bytes).is_err());
        let numbers: Vec<u32> = readable(&bytes)
            .iter()
            .map(|message| message.header.sequence_number)
            .collect();
        assert_eq!(numbers, [7, 8]);
        assert!(readable(&[0; 3]).is_empty());
    }
}
