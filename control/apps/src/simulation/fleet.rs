//! The fleet of one control of the simulation: the real state, with the timer and the events that its tasks have.

use std::collections::VecDeque;

use dormouse_fleet::proto::{Entry, Hello, Up};
use dormouse_fleet::root::{Event, Next, Root, Session};
use dormouse_fleet::state::{Changed, State};
use dormouse_fleet::{Boottime, ServerConfig};

use super::Without;
use crate::action;
use crate::actuator::convert::entry_message;

pub(super) struct Fleet {
    state: State,
    /// When the task that watches leases wakes.
    timer: Option<Boottime>,
    events: VecDeque<Event>,
    /// When a change last settled by the end of a lease.
    pub(super) waited_at: Boottime,
    without: Without,
}

impl Fleet {
    pub(super) fn new(config: ServerConfig, now: Boottime, without: Without) -> Self {
        let mut state = State::new(config, now);
        if without == Without::Confirmation {
            state.root.confirmed(Boottime(u64::MAX), now);
        }
        Self {
            state,
            timer: None,
            events: VecDeque::new(),
            waited_at: Boottime(0),
            without,
        }
    }

    /// Streams are asked for their next messages in each step, and need not be woken.
    pub(super) fn root(&mut self) -> &mut Root {
        &mut self.state.root
    }

    /// What has happened, in order.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn announce(
        &mut self,
        vip: u32,
        version: u64,
        entry: &action::Entry,
        now: Boottime,
    ) {
        let message = entry_message(vip, version, entry);
        self.change(|state| {
            if entry.idle {
                state.publish_idle(message, now)
            } else {
                state.publish(message, now)
            }
        });
    }

    pub(super) fn withdraw(&mut self, vip: u32, version: u64, now: Boottime) {
        let gone = Entry {
            vip,
            version,
            gone: true,
            settle: true,
            ..Entry::default()
        };
        self.change(|state| state.publish(gone, now));
    }

    pub(super) fn absent(&mut self, vip: u32, now: Boottime) {
        self.change(|state| state.absent(vip, now));
    }

    pub(super) fn settle(&mut self, vip: u32, version: u64, now: Boottime) {
        let settled = if self.without == Without::SettleWait {
            Some(Event::Settled { vip, version })
        } else {
            self.step(|state| state.settle(vip, version, now))
        };
        self.events.extend(settled);
    }

    pub(super) fn hello(&mut self, hello: Hello, now: Boottime) -> Session {
        let (opened, settled) = self.step(|state| state.hello(hello, now)).unwrap();
        self.events.push_back(opened.event);
        self.events.extend(settled);
        opened.session
    }

    pub(super) fn receive(&mut self, session: Session, up: Up, now: Boottime) {
        if self.without == Without::SettleCheck {
            let received = self.state.root.receive(session, up, now);
            self.events.extend(received.events);
            return;
        }
        let taken = self.step(|state| state.receive(session, up, now));
        self.events.extend(taken.settled);
        self.events.extend(taken.events);
    }

    pub(super) fn next(&mut self, session: Session, now: Boottime) -> Next {
        self.state.root.next(session, now)
    }

    pub(super) fn end(&mut self, session: Session, now: Boottime) {
        self.step(|state| state.root.end(session, now));
    }

    /// Wakes the tasks whose time has come.
    pub(super) fn tick(&mut self, now: Boottime) {
        let vips = self.state.root.wanted(usize::MAX);
        if !vips.is_empty() {
            self.events.push_back(Event::Wanted { vips });
        }
        while self.timer.is_some_and(|at| at <= now) {
            let ended = self.state.expire(now);
            if matches!(ended, Some(Event::Settled { .. })) {
                self.waited_at = now;
            }
            self.events.extend(ended);
            self.timer = self.state.set_timer();
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut State) -> Changed) {
        let changed = self.step(change);
        self.events.extend(changed.settled);
    }

    fn step<T>(&mut self, step: impl FnOnce(&mut State) -> T) -> T {
        let result = step(&mut self.state);
        if self.state.is_timer_late() && self.without != Without::LeaseTimer {
            self.timer = self.state.set_timer();
        }
        result
    }
}
