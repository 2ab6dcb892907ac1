//! The protocol between plugin and agent over a Unix stream: a version byte, a length (4 bytes, big endian), JSON; the
//! reply has no version byte. The first byte of a request carries the pod's namespace as a file descriptor.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::message::{Reply, Request};

#[cfg(test)]
mod tests;

/// The protocol's version: the first byte of a request.
const WIRE_VERSION: u8 = 1;
/// Longest request or reply, in bytes: a GC list of 10,000 attachments takes 1 MiB.
pub const MESSAGE_LEN_MAX: usize = 4 * 1024 * 1024;

/// Sends a request, with the pod's namespace for ADD and CHECK.
pub fn send_request(
    mut stream: &UnixStream,
    request: &Request,
    netns: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let body = encode(request)?;
    let descriptors = netns.as_slice();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    // One system call if the buffer has room, so that the receiver wakes only once.
    let parts = [IoSlice::new(&[WIRE_VERSION]), IoSlice::new(&body)];
    let sent = sendmsg(stream, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    stream.write_all(&body[sent.saturating_sub(1)..])
}

/// Receives a request and its namespace.
pub fn receive_request(stream: &UnixStream) -> io::Result<(Request, Option<OwnedFd>)> {
    let (version, netns) = receive_first(stream)?;
    if version != WIRE_VERSION {
        let text = format!(
            "the plugin uses protocol version {version}, the agent {WIRE_VERSION}: install both from one release"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok((decode(stream)?, netns))
}

/// Sends a reply.
pub fn send_reply(mut stream: &UnixStream, reply: &Reply) -> io::Result<()> {
    stream.write_all(&encode(reply)?)
}

/// Receives a reply.
pub fn receive_reply(stream: &UnixStream) -> io::Result<Reply> {
    decode(stream)
}

/// Whether the other side has closed the connection; a plugin keeps it open until it has the reply.
pub fn is_closed(stream: &UnixStream) -> bool {
    let mut byte = [0u8; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recv(stream, &mut byte, flags) {
        Ok((_, length)) => length == 0,
        Err(error) => error != rustix::io::Errno::AGAIN,
    }
}

/// The user id of the peer, recorded by the kernel at connect (`SO_PEERCRED`).
pub fn peer_uid(stream: impl AsFd) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw())
}

fn receive_first(stream: &UnixStream) -> io::Result<(u8, Option<OwnedFd>)> {
    let mut byte = [0u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut first = [IoSliceMut::new(&mut byte)];
    let message = recvmsg(stream, &mut first, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let netns = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((byte[0], netns))
}

fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len())
        .ok()
        .filter(|_| json.len() <= MESSAGE_LEN_MAX);
    let length = length.ok_or_else(too_long)?;
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(json);
    Ok(bytes)
}

fn decode<M: DeserializeOwned>(mut stream: &UnixStream) -> io::Result<M> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
    if length > MESSAGE_LEN_MAX {
        return Err(too_long());
    }
    let mut json = vec![0; length];
    stream.read_exact(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

fn too_long() -> io::Error {
    let text = format!("a message is longer than {MESSAGE_LEN_MAX} bytes");
    io::Error::new(io::ErrorKind::InvalidData, text)
}
