//! One connection of the plugin: checks the peer, runs its request, and undoes an ADD whose plugin has gone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dormouse_agent_ipam::LeaseKey;
use dormouse_agent_pod::{Network, NetworkError};
use dormouse_cni::error::{CniError, code};
use dormouse_cni::message::{Attachment, Reply, Request, Wanted, Wired};
use dormouse_cni::wire;

use super::{Parts, answer};
use crate::host_ports::{HostPortError, PodPorts};

/// Time limit for receiving the request, and for sending the reply.
const TALK_DEADLINE: Duration = Duration::from_secs(5);
/// An ADD that took longer is undone: the runtime may have given up, and will call again.
const ADD_DEADLINE: Duration = Duration::from_secs(30);

/// Runs one request and sends the reply.
pub(crate) fn serve(stream: &UnixStream, parts: &Parts) -> io::Result<()> {
    let network = &*parts.network;
    let began = Instant::now();
    let Some((request, netns)) = receive(stream)? else {
        return Ok(());
    };
    let command = answer::command(&request);
    let is_new = matches!(request, Request::Add { .. } | Request::Reserve { .. });
    let reply = match request {
        _ if is_new && !*parts.in_force.borrow() => {
            Reply::Failed(answer::not_in_force(code::TRY_AGAIN))
        }
        Request::Add { attachment, wanted } => {
            let key = key(attachment);
            let added = add(parts, &key, netns, wanted);
            let adding = Adding {
                stream,
                network,
                key,
                began,
            };
            return adding.end(added.map(Reply::Wired));
        }
        Request::Reserve { attachment, wanted } => {
            let key = key(attachment);
            let added = netns
                .ok_or(NetworkError::MissingNetns)
                .and_then(|netns| network.reserve(&key, netns.as_fd(), &wanted))
                .map_err(|error| answer::error(&error));
            let adding = Adding {
                stream,
                network,
                key,
                began,
            };
            return adding.end(added.map(Reply::Reserved));
        }
        Request::Del { attachment } => answer::reply(network.del(&key(attachment))),
        Request::Check {
            attachment,
            addresses,
            mac,
        } => answer::reply(
            netns
                .ok_or(NetworkError::MissingNetns)
                .and_then(|netns| network.check(&key(attachment), netns.as_fd(), &addresses, mac)),
        ),
        Request::Gc {
            network: name,
            valid,
        } => answer::reply(network.gc(&name, valid.as_deref())),
        Request::Status {} if !*parts.in_force.borrow() => {
            Reply::Failed(answer::not_in_force(code::NOT_AVAILABLE))
        }
        Request::Status {} => answer::reply(network.status()),
    };
    network
        .counters()
        .record(command, answer::code_of(&reply), began.elapsed());
    wire::send_reply(stream, &reply)
}

/// Replies to a request that cannot be run.
pub(crate) fn refuse(stream: &UnixStream, error: &NetworkError) -> io::Result<()> {
    let Some((request, _)) = receive(stream)? else {
        return Ok(());
    };
    let code = match request {
        Request::Status {} => code::NOT_AVAILABLE,
        _ => code::TRY_AGAIN,
    };
    let error = answer::error(error);
    wire::send_reply(stream, &Reply::Failed(CniError { code, ..error }))
}

/// Receives the request of an authorized plugin; none if it was refused.
pub(super) fn receive(stream: &UnixStream) -> io::Result<Option<(Request, Option<OwnedFd>)>> {
    stream.set_read_timeout(Some(TALK_DEADLINE))?;
    stream.set_write_timeout(Some(TALK_DEADLINE))?;
    let refuse = |error| wire::send_reply(stream, &Reply::Failed(error)).map(|()| None);
    let uid = wire::peer_uid(stream)?;
    if uid != 0 {
        let msg = format!("peer has uid {uid}; only root may call the agent");
        return refuse(CniError::new(code::NODE, msg));
    }
    let (request, netns) = wire::receive_request(stream)?;
    match request.check() {
        Err(error) => refuse(error),
        Ok(()) => Ok(Some((request, netns))),
    }
}

/// Connects a pod, and gives it its ports of the node; without them, it is removed again.
fn add(
    parts: &Parts,
    key: &LeaseKey,
    netns: Option<OwnedFd>,
    wanted: Wanted,
) -> Result<Wired, CniError> {
    let asked = serde_json::to_value(&wanted.ports).unwrap_or_default();
    let host_ports = parts.host_ports.as_ref().filter(|it| it.has_services());
    if host_ports.is_none() && !wanted.ports.is_empty() {
        return Err(answer::ports_error(&HostPortError::NoServices, &asked));
    }
    let added = netns
        .ok_or(NetworkError::MissingNetns)
        .and_then(|netns| parts.network.add(key, netns.as_fd(), &wanted));
    note(key, &wanted, added.is_ok());
    let wired = added.map_err(|error| answer::error(&error))?;
    let Some(host_ports) = host_ports else {
        return Ok(wired);
    };
    let pod = PodPorts::now((wired.address, wired.address4), wanted.pod, wanted.ports);
    // A DEL that came meanwhile found no ports.
    let is_wired = || parts.network.is_wired(key, wired.address);
    let Err(error) = host_ports.add(&pod, is_wired) else {
        return Ok(wired);
    };
    // A pod that is gone may have a successor with this key.
    if !matches!(error, HostPortError::Gone)
        && let Err(error) = parts.network.del(key)
    {
        tracing::warn!(error = error.chain(), %key, "failed to remove a pod that did not get its ports");
    }
    Err(answer::ports_error(&error, &asked))
}

/// Logs the pod's name in Kubernetes with its key in the journal.
fn note(key: &LeaseKey, wanted: &Wanted, is_wired: bool) {
    if let Some(pod) = wanted.pod.as_ref().filter(|_| is_wired) {
        let uid = pod.uid.as_deref().unwrap_or_default();
        tracing::info!(%key, namespace = pod.namespace, pod = pod.name, uid, "pod connected to the network");
    }
}

/// An ADD whose reply has not been sent.
struct Adding<'a> {
    stream: &'a UnixStream,
    network: &'a Network,
    key: LeaseKey,
    began: Instant,
}

impl Adding<'_> {
    /// Replies, or undoes the ADD if it was late or the plugin has gone.
    fn end(self, added: Result<Reply, CniError>) -> io::Result<()> {
        let made = added.is_ok();
        let late = self.began.elapsed() > ADD_DEADLINE || wire::is_closed(self.stream);
        let reply = match added {
            Ok(_) if late => {
                let msg = format!("ADD took too long and was undone: {}", self.key);
                Reply::Failed(CniError::new(code::TRY_AGAIN, msg))
            }
            Ok(reply) => reply,
            Err(error) => Reply::Failed(error),
        };
        let undone = if made && late { self.undo() } else { Ok(()) };
        let sent = undone.and_then(|()| wire::send_reply(self.stream, &reply));
        let code = answer::code_of(&reply);
        let counters = self.network.counters();
        counters.record("ADD", code, self.began.elapsed());
        match sent {
            Err(error) if made && !late => self.undo().and(Err(error)),
            other => other,
        }
    }

    fn undo(&self) -> io::Result<()> {
        tracing::info!(key = %self.key, "undoing an ADD whose plugin has gone");
        let deleted = self.network.del(&self.key);
        deleted.map_err(|error| io::Error::other(error.chain()))
    }
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
