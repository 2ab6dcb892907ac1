//! The root, and the changes that wait until they have settled: what streams and the rest of control do to the fleet, in single
//! steps. Pure.

use tokio::sync::oneshot;

use crate::clock::Boottime;
use crate::config::ServerConfig;
use crate::proto::{Entry, Hello, Up};
use crate::root::{Event, HelloError, Opened, Received, Root, Session};
use crate::settles::Settles;

/// The fleet's state.
pub struct State {
    /// The entries, and the nodes.
    pub root: Root,
    settles: Settles,
    /// The time at which [`State::expire`] is called next.
    timer: Option<Boottime>,
}

/// The effects of a changed entry.
#[derive(Debug, Default)]
pub struct Changed {
    /// The streams to wake.
    pub wakes: Vec<Session>,
    /// The event of a change that has settled by it.
    pub settled: Option<Event>,
}

/// The effects of one message from a node.
#[derive(Debug, Default)]
pub struct Taken {
    /// Events that the message carried.
    pub events: Vec<Event>,
    /// The events of changes that have settled by it. They are in no table any more: none may be lost.
    pub settled: Vec<Event>,
    /// The stream may have a message to send.
    pub wakes: bool,
}

impl State {
    /// A root that starts at `now`, as [`Root::new`] has it, and no changes.
    pub fn new(config: ServerConfig, now: Boottime) -> Self {
        Self {
            root: Root::new(config, now),
            settles: Settles::default(),
            timer: None,
        }
    }

    /// Publishes an entry, as [`Root::publish`] does.
    pub fn publish(&mut self, entry: Entry, now: Boottime) -> Changed {
        let vip = entry.vip;
        let wakes = self.root.publish(entry);
        self.changed(vip, wakes, now)
    }

    /// Publishes the entry of an idle app, as [`Root::publish_idle`] does.
    pub fn publish_idle(&mut self, entry: Entry, now: Boottime) -> Changed {
        let vip = entry.vip;
        let wakes = self.root.publish_idle(entry);
        self.changed(vip, wakes, now)
    }

    /// Answers that no such VIP exists, as [`Root::absent`] does.
    pub fn absent(&mut self, vip: u32, now: Boottime) -> Changed {
        let wakes = self.root.absent(vip);
        self.changed(vip, wakes, now)
    }

    fn changed(&mut self, vip: u32, wakes: Vec<Session>, now: Boottime) -> Changed {
        let settled = self.settles.check(&self.root, vip, now);
        Changed { wakes, settled }
    }

    /// Waits until a version of a VIP's entry has settled, and no longer for an earlier one. Returns the event if it has already.
    pub fn settle(&mut self, vip: u32, version: u64, now: Boottime) -> Option<Event> {
        self.settles.add(&self.root, (vip, version), now)
    }

    /// Waits for a version of a VIP's entry for one caller, beside others; returns the event of another change that has settled.
    pub(crate) fn call(
        &mut self,
        vip: u32,
        version: u64,
        now: Boottime,
    ) -> (oneshot::Receiver<()>, Option<Event>) {
        let settled = self.settles.call(vip, version);
        (settled, self.settles.check(&self.root, vip, now))
    }

    /// Opens a stream for a node, as [`Root::hello`] does. The node may follow fewer VIPs than before: returns the events of the changes
    /// that have settled by it, too.
    pub fn hello(
        &mut self,
        hello: Hello,
        now: Boottime,
    ) -> Result<(Opened, Vec<Event>), HelloError> {
        let opened = self.root.hello(hello)?;
        Ok((opened, self.settles.check_all(&self.root, now)))
    }

    /// Receives one message of a stream; messages of a closed stream are ignored.
    pub fn receive(&mut self, session: Session, up: Up, now: Boottime) -> Taken {
        let Received {
            events,
            settles,
            wakes,
        } = self.root.receive(session, up, now);
        let settled = settles.into_iter();
        let settled = settled.filter_map(|vip| self.settles.check(&self.root, vip, now));
        Taken {
            events,
            settled: settled.collect(),
            wakes,
        }
    }

    /// What follows from the end of a lease, one event at a time: a change has settled, or a node without a stream is lost.
    pub fn expire(&mut self, now: Boottime) -> Option<Event> {
        let settled = self.settles.expire(&self.root, now);
        settled.or_else(|| self.root.expire(now))
    }

    /// The time at which [`State::expire`] is to be called next: the end of the first lease that something waits for.
    pub fn set_timer(&mut self) -> Option<Boottime> {
        self.timer = self.next_end();
        self.timer
    }

    /// Whether a lease that something waits for ends before the timer rings: [`State::set_timer`] has to be called again.
    pub fn is_timer_late(&self) -> bool {
        self.next_end()
            .is_some_and(|end| self.timer.is_none_or(|timer| end < timer))
    }

    fn next_end(&self) -> Option<Boottime> {
        let ends = [self.root.expires_at(), self.settles.due_at()];
        ends.into_iter().flatten().min()
    }
}
