//! The controller's end of the link, pure: the routes of apps that do not sleep, and what each activator has still to get.

mod peer;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_fleet::Boottime;

use super::message::{pack, unpack_answer};
use super::proto::unanswered::How;
use super::proto::{self, Down, Hello, Up};
use crate::{Report, Route, Unanswered};
use peer::{Answer, Peer};

/// Identifies one stream of one activator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(u64);

/// One app's load in one activator during about a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The app's VIP index.
    pub vip: u32,
    /// Average number of concurrent requests, parked ones included.
    pub concurrency: f64,
    /// Number of requests that arrived.
    pub requests: f64,
}

/// What an activator reports. Times are of the controller's `CLOCK_BOOTTIME`.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An activator has opened its stream.
    Attached {
        /// Its name.
        name: String,
    },
    /// An activator's stream has ended.
    Detached {
        /// Its name.
        name: String,
    },
    /// A request needs a route or a pod, or the first response of a wake has begun.
    Report(Report),
    /// The load of one second in one activator; only of apps with load.
    Load(Vec<Load>),
}

/// The next message of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Send this.
    Send(Box<Down>),
    /// There is nothing to send.
    Idle,
    /// The activator has opened another stream: end this one.
    Closed,
}

/// The controller's end of the link.
#[derive(Debug)]
pub struct Root {
    epoch: u64,
    /// Of apps with backends or a problem only: a sleeping app has no entry.
    routes: BTreeMap<u32, Arc<proto::Route>>,
    ports: BTreeSet<u16>,
    /// All awake apps have been published since the start.
    complete: bool,
    peers: BTreeMap<Session, Peer>,
    session_last: u64,
    boot_id: String,
}

impl Root {
    /// The link of a control with this epoch, on the machine with this boot id.
    pub fn new(epoch: u64, boot_id: String) -> Self {
        Self {
            epoch,
            routes: BTreeMap::new(),
            ports: BTreeSet::new(),
            complete: false,
            peers: BTreeMap::new(),
            session_last: 0,
            boot_id,
        }
    }

    /// Sets an app's route: with backends or a problem it goes to every activator, otherwise only to those that had one or
    /// wait for the answer. Returns the streams to wake.
    pub fn publish(&mut self, vip: u32, route: Route) -> Vec<Session> {
        let held = route.is_held();
        let route = Arc::new(pack(vip, route));
        let before = if held {
            self.routes.insert(vip, Arc::clone(&route))
        } else {
            self.routes.remove(&vip)
        };
        let mut wakes = Vec::new();
        for (session, peer) in &mut self.peers {
            let waits = peer.answered(vip);
            if held || before.is_some() || waits {
                peer.send(vip, Answer::Route(Arc::clone(&route)));
                wakes.push(*session);
            }
        }
        wakes
    }

    /// A VIP has no app. Returns the streams to wake.
    pub fn absent(&mut self, vip: u32) -> Vec<Session> {
        self.routes.remove(&vip);
        for peer in self.peers.values_mut() {
            peer.answered(vip);
            peer.send(vip, Answer::Absent);
        }
        self.sessions()
    }

    /// Sets the ports of all apps. Returns the streams to wake.
    pub fn ports(&mut self, ports: BTreeSet<u16>) -> Vec<Session> {
        if ports == self.ports {
            return Vec::new();
        }
        self.ports = ports;
        for peer in self.peers.values_mut() {
            peer.ports_pending = true;
        }
        self.sessions()
    }

    /// All awake apps have been published since the start: activators drop what an earlier control gave them. Returns the
    /// streams to wake.
    pub fn complete(&mut self) -> Vec<Session> {
        self.complete = true;
        self.sessions()
    }

    fn sessions(&self) -> Vec<Session> {
        self.peers.keys().copied().collect()
    }

    /// Opens a stream. An older one of the same activator is closed and returned.
    pub fn open(&mut self, hello: Hello) -> (Session, Option<Session>) {
        let older = self
            .peers
            .iter()
            .find(|(_, peer)| peer.name() == hello.name)
            .map(|(session, _)| *session);
        if let Some(older) = older {
            self.peers.remove(&older);
        }
        self.session_last += 1;
        let session = Session(self.session_last);
        let remote = hello.boot_id != self.boot_id;
        let mut peer = Peer::new(hello.name, remote);
        for (vip, route) in &self.routes {
            peer.send(*vip, Answer::Route(Arc::clone(route)));
        }
        self.peers.insert(session, peer);
        (session, older)
    }

    /// Ends a stream; returns whether it was still open.
    pub fn end(&mut self, session: Session) -> bool {
        self.peers.remove(&session).is_some()
    }

    /// Takes a message of an activator. A want of an awake app is answered at once; the others are events.
    pub fn receive(&mut self, session: Session, up: Up, now: Boottime) -> Vec<Event> {
        let Some(peer) = self.peers.get_mut(&session) else {
            return Vec::new();
        };
        peer.clock.heard(Boottime(up.sent_ns), now);
        let mut events = Vec::new();
        for want in up.wants {
            if let Some(route) = self.routes.get(&want.vip) {
                peer.send(want.vip, Answer::Route(Arc::clone(route)));
            } else if peer.asks(want.vip)
                && let Ok(port) = u16::try_from(want.port)
            {
                events.push(Event::Report(Report::Want {
                    vip: want.vip,
                    port,
                    at: peer.clock.root_time(want.at_ns),
                }));
            }
        }
        let demands = up.demands.into_iter().map(|demand| Report::Demand {
            vip: demand.vip,
            at: peer.clock.root_time(demand.at_ns),
        });
        let first_bytes = up.first_bytes.into_iter().map(|first| Report::FirstByte {
            vip: first.vip,
            at: peer.clock.root_time(first.at_ns),
        });
        let unanswered = up.unanswered.into_iter().map(|ended| Report::Unanswered {
            vip: ended.vip,
            at: peer.clock.root_time(ended.at_ns),
            how: why(ended.how()),
        });
        // The end of a wake has the reason of its pod.
        let clock = &peer.clock;
        let answers = up.answers.into_iter().filter_map(|answer| {
            let (vip, at) = (answer.vip, clock.root_time(answer.at_ns));
            let (pod, fault) = unpack_answer(answer)?;
            Some(Report::Answer {
                vip,
                pod,
                at,
                fault,
            })
        });
        let reports = demands.chain(first_bytes).chain(answers).chain(unanswered);
        events.extend(reports.map(Event::Report));
        if !up.loads.is_empty() {
            events.push(Event::Load(
                up.loads
                    .into_iter()
                    .map(|load| Load {
                        vip: load.vip,
                        concurrency: load.concurrency,
                        requests: load.requests,
                    })
                    .collect(),
            ));
        }
        events
    }

    /// The next message of a stream, with the newest of everything.
    pub fn next(&mut self, session: Session) -> Next {
        let Some(peer) = self.peers.get_mut(&session) else {
            return Next::Closed;
        };
        match peer.next(self.epoch, &self.ports, self.complete) {
            Some(down) => Next::Send(Box::new(down)),
            None => Next::Idle,
        }
    }

    /// The number of open streams.
    pub fn streams(&self) -> usize {
        self.peers.len()
    }

    /// The number of routes held: of apps with backends or a problem.
    pub fn routes(&self) -> usize {
        self.routes.len()
    }
}

fn why(how: How) -> Unanswered {
    match how {
        How::Abandoned => Unanswered::Abandoned,
        How::TimedOut => Unanswered::TimedOut,
        How::Failed => Unanswered::Failed,
        How::Refused => Unanswered::Refused,
    }
}
