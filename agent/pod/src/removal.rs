//! Deletion of links, many at a time. The kernel takes 10 to 30 ms to free a link's memory, no matter how many are deleted
//! together, so links are put into one interface group and deleted by one message. A link is invisible before that: the kernel
//! sends a notification when it can no longer be found, and the caller waits no longer than that.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use dormouse_agent_netlink::batch::again;
use dormouse_agent_netlink::rtnl::{Ask, Message, encode, note, receive_readable, socket};
use dormouse_agent_netlink::{Request, RequestError, first_refusal};
use dormouse_cni::pending::since_boot;
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use nix::libc;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimeout};
use nix::sys::time::TimeVal;
use parking_lot::Mutex;

use super::adds::Adds;
use super::messages;

/// Maximum number of links in a group: other link changes wait until all of it is unregistered.
const GROUP_MAX: usize = 4;
/// Longest time that a deletion waits for ADDs, so that deletions go on under a stream of them.
const ADDS_MAX: Duration = Duration::from_millis(50);
/// The same for each group of a backlog that has waited so long: about the time of one ADD.
const BACKLOG_ADDS_MAX: Duration = Duration::from_millis(10);
/// Receive buffer in bytes: notifications about other links arrive too.
const RECEIVE_BUFFER_LEN: usize = 4 << 20;
/// Maximum time without a message of the kernel, in seconds.
const PATIENCE_S: i64 = 30;
/// Sequence number of a group's first request.
const FIRST: u32 = 1;

/// A link to delete.
struct Deletion {
    link: String,
    /// Time of the request, since boot.
    since: Duration,
    /// The request that moves it into the group, and further requests of the caller.
    requests: Vec<Request>,
    answer: SyncSender<Result<(), RequestError>>,
}

/// Deletes links of any thread, together with those of other waiting threads.
pub(crate) struct Remover {
    waiting: Mutex<VecDeque<Deletion>>,
    turn: Mutex<()>,
    /// Before each group, the ADDs in progress are waited for.
    pub(crate) adds: Adds,
    /// Longest time of that.
    adds_max: Duration,
}

impl Default for Remover {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            turn: Mutex::default(),
            adds: Adds::default(),
            adds_max: ADDS_MAX,
        }
    }
}

impl Remover {
    /// Executes `requests` and deletes the link. A missing link is no error. Uses the calling thread's network namespace.
    pub(crate) fn remove(&self, link: &str, requests: Vec<Request>) -> Result<(), RequestError> {
        let (answer, answered) = sync_channel(1);
        self.waiting.lock().push_back(Deletion {
            link: link.to_owned(),
            since: since_boot(),
            requests,
            answer,
        });
        loop {
            let turn = self.turn.lock();
            if let Ok(done) = answered.try_recv() {
                return done;
            }
            let oldest = self.waiting.lock().front().map(|deletion| deletion.since);
            if let Some(since) = oldest {
                let limit = yields_for(self.adds_max, since, since_boot());
                self.adds.wait_for_none(limit);
            }
            let group = take_group(&mut self.waiting.lock());
            remove_group(group);
            drop(turn);
        }
    }
}

/// How long a deletion that was requested at `since` still yields to ADDs, of `limit` in all. Those behind it have waited with it: after one wait,
/// each group of a backlog yields to one ADD at most.
fn yields_for(limit: Duration, since: Duration, now: Duration) -> Duration {
    limit
        .saturating_sub(now.saturating_sub(since))
        .max(BACKLOG_ADDS_MAX)
}

/// The oldest deletions, as many as one group may have.
fn take_group<T>(waiting: &mut VecDeque<T>) -> Vec<T> {
    let count = waiting.len().min(GROUP_MAX);
    waiting.drain(..count).collect()
}

fn remove_group(group: Vec<Deletion>) {
    let mut all = Vec::new();
    let mut askers = Vec::new();
    for Deletion {
        link,
        requests,
        answer,
        ..
    } in group
    {
        let first = all.len();
        all.push(messages::mark_for_deletion(&link));
        all.extend(requests);
        askers.push((link, first..all.len(), answer));
    }
    all.push(messages::delete_marked());
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
        // The receiver waits for nothing else: it cannot be gone.
        let _ = answer.send(done);
    }
}

/// A group that is being deleted.
struct Removal {
    socket: Arc<Socket>,
    codes: Vec<Option<i32>>,
    /// The links, by the index of the request that moves each into the group.
    links: Vec<(usize, String)>,
    gone: HashSet<String>,
}

impl Removal {
    /// Sends on a thread of its own, because the system call returns only when all memory is freed.
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

    /// Waits until all links are gone. Returns the error number of each request.
    fn finish(mut self) -> io::Result<Vec<i32>> {
        while !self.is_done() {
            for message in receive_readable(&self.socket)? {
                self.receive(&message);
            }
        }
        Ok(self
            .codes
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect())
    }

    fn receive(&mut self, message: &Message) {
        note(&mut self.codes, FIRST, message);
        if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) = &message.payload
            && let Some(name) = name(link)
        {
            self.gone.insert(name.to_owned());
        }
    }

    /// The last request is acknowledged when the memory is freed.
    fn is_done(&self) -> bool {
        let Some((removed, others)) = self.codes.split_last() else {
            return true;
        };
        let is_gone =
            |(place, link): &(usize, String)| others[*place] != Some(0) || self.gone.contains(link);
        others.iter().all(Option::is_some) && (removed.is_some() || self.links.iter().all(is_gone))
    }
}

/// Name of a deleted link; none if the message is only a bridge's about a lost port.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn a_group_is_the_oldest_few() {
        let mut waiting: VecDeque<_> = (0..=GROUP_MAX).collect();
        assert_eq!(take_group(&mut waiting), (0..GROUP_MAX).collect::<Vec<_>>());
        assert_eq!(take_group(&mut waiting), [GROUP_MAX]);
        assert!(take_group(&mut waiting).is_empty());
    }

    #[test]
    fn a_deletion_yields_once_and_those_behind_it_to_one_add_a_group() {
        let since = Duration::from_secs(9);
        let yields = |since, now| yields_for(ADDS_MAX, since, now);
        assert_eq!(yields(since, since), ADDS_MAX);
        let late = since + ADDS_MAX / 2;
        assert_eq!(yields(since, late), ADDS_MAX / 2);
        assert_eq!(yields(since, since + ADDS_MAX * 3), BACKLOG_ADDS_MAX);
        assert_eq!(yields(late, since), ADDS_MAX, "a clock that reads less");
    }

    /// Whether the calling thread's network namespace has the link.
    fn exists(link: &str) -> bool {
        let links = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let mut names = links.lines().filter_map(|line| line.split_once(':'));
        names.any(|(name, _)| name.trim() == link)
    }

    #[test]
    fn no_link_is_deleted_while_an_add_runs() {
        let run = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let words = ["link", "add", "pod", "type", "veth", "peer", "name", "end"];
            assert!(Command::new("ip").args(words).status().unwrap().success());
            let remover = Remover {
                adds_max: Duration::from_mins(1),
                ..Remover::default()
            };
            let adding = remover.adds.begin();
            thread::scope(|scope| {
                let deletion = scope.spawn(|| remover.remove("pod", Vec::new()));
                while remover.waiting.lock().is_empty() && !deletion.is_finished() {
                    thread::yield_now();
                }
                // One that does not wait is done within a few milliseconds, which this takes, too.
                let stays = (0..1_000).all(|_| exists("pod"));
                drop(adding);
                assert!(stays, "the link is there while the ADD runs");
                deletion.join().unwrap().unwrap();
                assert!(!exists("pod"));
            });
        });
        run.join().unwrap();
    }
}
