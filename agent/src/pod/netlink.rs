//! Talks to the kernel's routing socket: many requests in one send, one acknowledgement each.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// One request to the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// What it does, for errors.
    pub(crate) what: &'static str,
    /// The message.
    pub(crate) message: RouteNetlinkMessage,
    /// Flags beside REQUEST and ACK.
    pub(crate) flags: u16,
    /// An error number that means that there was nothing left to do.
    pub(crate) tolerated: Option<i32>,
}

/// A request that the kernel refused. Later ones of the same batch were carried out all the same.
#[derive(Debug, thiserror::Error)]
#[error("failed to {what}")]
pub struct RequestError {
    /// What the request does.
    pub what: &'static str,
    /// The kernel's reason.
    #[source]
    pub source: io::Error,
}

/// A routing socket of the namespace in which it was opened.
pub(crate) struct Rtnl {
    socket: Socket,
    sequence: u32,
}

impl Rtnl {
    /// Opens a socket in the calling thread's namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Errors come back without the request that caused them.
        socket.set_cap_ack(true)?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Sends all requests together and returns the first refusal.
    pub(crate) fn batch(&mut self, requests: &[Request]) -> Result<(), RequestError> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for request in requests {
            self.sequence = self.sequence.wrapping_add(1);
            let flags = request.flags | NLM_F_REQUEST | NLM_F_ACK;
            append(&mut bytes, self.sequence, flags, request.message.clone());
        }
        let whole = |source| RequestError {
            what: "talk to the kernel's routing socket",
            source,
        };
        self.socket.send(&bytes, 0).map_err(whole)?;
        let codes = self
            .acknowledgements(first, requests.len())
            .map_err(whole)?;
        for (request, code) in requests.iter().zip(codes) {
            if code != 0 && Some(code) != request.tolerated {
                let source = io::Error::from_raw_os_error(code);
                return Err(RequestError {
                    what: request.what,
                    source,
                });
            }
        }
        Ok(())
    }

    fn acknowledgements(&mut self, first: u32, count: usize) -> io::Result<Vec<i32>> {
        let mut codes = vec![None; count];
        while codes.iter().any(Option::is_none) {
            for message in self.receive()? {
                if let NetlinkPayload::Error(error) = &message.payload {
                    let index = message.header.sequence_number.wrapping_sub(first);
                    let slot = usize::try_from(index).ok().and_then(|i| codes.get_mut(i));
                    if let Some(slot) = slot {
                        *slot = Some(error.raw_code().saturating_neg());
                    }
                }
            }
        }
        Ok(codes.into_iter().flatten().collect())
    }

    /// All links of the namespace.
    pub(crate) fn links(&mut self) -> io::Result<Vec<LinkMessage>> {
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
            for message in self.receive()? {
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

    fn receive(&mut self) -> io::Result<Vec<NetlinkMessage<RouteNetlinkMessage>>> {
        let (bytes, _) = self.socket.recv_from_full()?;
        let mut messages = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            let length = usize::try_from(message.header.length).map_err(io::Error::other)?;
            let aligned = length.next_multiple_of(4).max(4);
            rest = rest.get(aligned..).unwrap_or_default();
            messages.push(message);
        }
        Ok(messages)
    }
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
