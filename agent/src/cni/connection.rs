//! One connection of the plugin: who it is, what it asks, and what becomes of an ADD that nobody waits for any more.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dormouse_agent_ipam::LeaseKey;
use dormouse_cni::error::{CniError, code};
use dormouse_cni::message::{Attachment, Reply, Request, Wired};
use dormouse_cni::wire;

use super::answer;
use crate::pod::{Network, NetworkError};

/// How long a connected plugin may take to say what it wants, and to read its answer.
const TALK_DEADLINE: Duration = Duration::from_secs(5);
/// An ADD that took longer is undone: the runtime may have given up and will ask again.
const ADD_DEADLINE: Duration = Duration::from_secs(30);

/// Serves one request to its end.
pub(super) fn serve(stream: &UnixStream, network: &Network) -> io::Result<()> {
    let began = Instant::now();
    stream.set_read_timeout(Some(TALK_DEADLINE))?;
    stream.set_write_timeout(Some(TALK_DEADLINE))?;
    let uid = wire::peer_uid(stream)?;
    if uid != 0 {
        let msg = format!("user {uid} asked; the agent answers root only");
        return wire::send_reply(stream, &Reply::Failed(CniError::new(code::NODE, msg)));
    }
    let (request, netns) = wire::receive_request(stream)?;
    if let Some(Err(error)) = request.attachment().map(Attachment::check) {
        return wire::send_reply(stream, &Reply::Failed(error));
    }
    let command = answer::command(&request);
    let reply = match request {
        Request::Add {
            attachment,
            address,
        } => {
            let key = key(attachment);
            let added = netns
                .ok_or(NetworkError::MissingNetns)
                .and_then(|netns| network.add(&key, netns.as_fd(), address));
            return add(stream, network, &key, added, began);
        }
        other => answer::reply(perform(network, other, netns)),
    };
    network
        .counters()
        .record(command, answer::code_of(&reply), began.elapsed());
    wire::send_reply(stream, &reply)
}

/// Answers an ADD, or undoes it when there is nobody to answer to.
fn add(
    stream: &UnixStream,
    network: &Network,
    key: &LeaseKey,
    added: Result<Wired, NetworkError>,
    began: Instant,
) -> io::Result<()> {
    let wired = added.is_ok();
    let late = began.elapsed() > ADD_DEADLINE || wire::is_closed(stream);
    let reply = match added {
        Ok(_) if late => {
            let msg = format!("ADD took too long and was undone: {key}");
            Reply::Failed(CniError::new(code::TRY_AGAIN, msg))
        }
        Ok(wired) => Reply::Wired(wired),
        Err(error) => Reply::Failed(answer::error(&error)),
    };
    let sent = if wired && late {
        undo(network, key)
    } else {
        Ok(())
    }
    .and_then(|()| wire::send_reply(stream, &reply));
    network
        .counters()
        .record("ADD", answer::code_of(&reply), began.elapsed());
    match sent {
        Err(error) if wired && !late => undo(network, key).and(Err(error)),
        other => other,
    }
}

fn undo(network: &Network, key: &LeaseKey) -> io::Result<()> {
    tracing::info!(%key, "undoes an ADD that nobody waits for");
    network
        .del(key)
        .map_err(|error| io::Error::other(error.chain()))
}

fn perform(network: &Network, request: Request, netns: Option<OwnedFd>) -> Result<(), CniError> {
    let done = match request {
        Request::Del { attachment } => network.del(&key(attachment)),
        Request::Check {
            attachment,
            addresses,
        } => netns
            .ok_or(NetworkError::MissingNetns)
            .and_then(|netns| network.check(&key(attachment), netns.as_fd(), &addresses)),
        Request::Gc {
            network: name,
            valid,
        } => network.gc(&name, valid.as_deref()),
        Request::Status {} if !network.has_room() => {
            let msg = "no address is left in the node's prefix";
            return Err(CniError::new(code::NOT_AVAILABLE, msg));
        }
        Request::Status {} | Request::Add { .. } => Ok(()),
    };
    done.map_err(|error| answer::error(&error))
}

fn key(attachment: Attachment) -> LeaseKey {
    let Attachment {
        network,
        container_id,
        ifname,
    } = attachment;
    LeaseKey {
        network,
        container: container_id,
        ifname,
    }
}
