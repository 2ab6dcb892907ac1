//! Removes links many at a time. The kernel takes 10 to 30 ms to let go of a link's memory, however many go together, so
//! doomed links are put into one interface group and removed by one message. A link is gone for everyone before that:
//! the kernel says so as soon as nobody can find it any more, and no caller waits longer.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use nix::libc;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimeout};
use nix::sys::time::TimeVal;
use parking_lot::Mutex;

use super::messages;
use dormouse_agent_netlink::batch::again;
use dormouse_agent_netlink::rtnl::{Ask, Message, encode, note, receive_readable, socket};
use dormouse_agent_netlink::{Request, RequestError, first_refusal};

/// Links that go together: the kernel changes no other link meanwhile, 0.3 ms for each.
const GROUP_MAX: usize = 16;
/// The kernel's messages about other links arrive too, in bytes.
const RECEIVE_BUFFER_LEN: usize = 4 << 20;
/// How long the kernel may say nothing, in seconds.
const PATIENCE_S: i64 = 30;
/// Number of a group's first request.
const FIRST: u32 = 1;

/// One link that shall go.
struct Doomed {
    link: String,
    /// Puts it into the group, and what else shall be done.
    requests: Vec<Request>,
    answer: SyncSender<Result<(), RequestError>>,
}

/// Removes links for any thread, together with those that others want gone.
#[derive(Default)]
pub(crate) struct Remover {
    waiting: Mutex<Vec<Doomed>>,
    turn: Mutex<()>,
}

impl Remover {
    /// Carries out `requests` and removes the link. One that is not there is no error. Works in the calling thread's
    /// namespace.
    pub(crate) fn remove(&self, link: &str, requests: Vec<Request>) -> Result<(), RequestError> {
        let (answer, answered) = sync_channel(1);
        self.waiting.lock().push(Doomed {
            link: link.to_owned(),
            requests,
            answer,
        });
        loop {
            let turn = self.turn.lock();
            if let Ok(done) = answered.try_recv() {
                return done;
            }
            let mut waiting = self.waiting.lock();
            let count = waiting.len().min(GROUP_MAX);
            let group: Vec<_> = waiting.drain(..count).collect();
            drop(waiting);
            remove_group(group);
            drop(turn);
        }
    }
}

fn remove_group(group: Vec<Doomed>) {
    let mut all = Vec::new();
    let mut askers = Vec::new();
    for Doomed {
        link,
        requests,
        answer,
    } in group
    {
        let first = all.len();
        all.push(messages::doom(&link));
        all.extend(requests);
        askers.push((link, first..all.len(), answer));
    }
    all.push(messages::remove_doomed());
    let links = askers
        .iter()
        .map(|(link, range, _)| (range.start, link.clone()));
    let codes = Removal::begin(&all, links.collect()).and_then(Removal::finish);
    for (_, range, answer) in askers {
        let done = match &codes {
            Ok(codes) => first_refusal(&all[range.clone()], &codes[range])
                .and_then(|()| first_refusal(&all[all.len() - 1..], &codes[all.len() - 1..])),
            Err(error) => Err(RequestError::socket(again(error))),
        };
        // Whoever asked waits for nothing else.
        let _ = answer.send(done);
    }
}

/// A group that is being removed.
struct Removal {
    socket: Arc<Socket>,
    codes: Vec<Option<i32>>,
    /// The links by the place of the request that dooms each.
    links: Vec<(usize, String)>,
    gone: HashSet<String>,
}

impl Removal {
    /// Sends from a thread of its own, for the kernel returns from the call only when it has let go of all memory.
    fn begin(requests: &[Request], links: Vec<(usize, String)>) -> io::Result<Self> {
        let socket = socket()?;
        socket.add_membership(libc::RTNLGRP_LINK)?;
        setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_LEN)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(PATIENCE_S, 0))?;
        let socket = Arc::new(socket);
        let (sender, bytes) = (Arc::clone(&socket), encode(FIRST, requests, Ask::Each));
        let thread = thread::Builder::new().name("unlink".to_owned());
        thread.spawn(move || sender.send(&bytes, 0))?;
        Ok(Self {
            socket,
            codes: vec![None; requests.len()],
            links,
            gone: HashSet::new(),
        })
    }

    /// Waits until all links are gone; each request's error number.
    fn finish(mut self) -> io::Result<Vec<i32>> {
        while !self.is_done() {
            for message in receive_readable(&self.socket)? {
                self.hear(&message);
            }
        }
        Ok(self
            .codes
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect())
    }

    fn hear(&mut self, message: &Message) {
        note(&mut self.codes, FIRST, message);
        if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) = &message.payload
            && let Some(name) = name(link)
        {
            self.gone.insert(name.to_owned());
        }
    }

    /// The last request's acknowledgement comes when even the memory is free.
    fn is_done(&self) -> bool {
        let Some((removed, others)) = self.codes.split_last() else {
            return true;
        };
        let is_gone =
            |(place, link): &(usize, String)| others[*place] != Some(0) || self.gone.contains(link);
        others.iter().all(Option::is_some) && (removed.is_some() || self.links.iter().all(is_gone))
    }
}

/// The name of a link that is gone; none where only a bridge tells that it lost a port.
fn name(link: &LinkMessage) -> Option<&str> {
    if link.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.as_str()),
            _ => None,
        })
}
