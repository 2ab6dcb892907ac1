//! The streams of nodes and of the activator: opened, carried late and in order, lost.

use std::time::Duration;

use dormouse_activator::link::root::Next as LinkNext;
use dormouse_fleet::Boottime;
use dormouse_fleet::root::Next;

use super::activator::Activator;
use super::control::Control;
use super::world::World;
use super::{LEASE, TICK, Without, log};

impl World {
    /// The control that a new stream reaches.
    fn dialled(&mut self) -> Option<u64> {
        let count = self.controls.len();
        (count > 0).then(|| self.controls[self.random.index(count)].epoch)
    }

    pub(super) fn reaches_activator(&self, index: usize) -> bool {
        self.machines[index].activator_cut_until <= self.now
            && self.activator.as_ref().is_some_and(Activator::is_ready)
    }

    pub(super) fn step_activator(&mut self) -> Result<(), String> {
        let now = self.now;
        if self.activator.is_none() && self.activator_dead_until <= now {
            self.log(|| "an activator starts".into());
            self.activator = Some(Activator::new(now, self.without));
        }
        self.attach();
        self.carry_link();
        let Some(activator) = &mut self.activator else {
            return Ok(());
        };
        if let Some((epoch, _)) = activator.session {
            // A control that cannot reach the store has no news.
            let since = activator.attached_at.max(self.calls.cut_until(epoch));
            if now.since(since) > Duration::from_secs(1) && activator.is_ready() {
                self.current_at = now;
            }
        }
        let ended = activator.step(now, &mut self.processes);
        self.take_ended(&ended)
    }

    fn attach(&mut self) {
        let now = self.now;
        let Some(activator) = &mut self.activator else {
            return;
        };
        if activator.session.is_some() || self.link_cut_until > now {
            return;
        }
        let Some(epoch) = self.dialled() else { return };
        let Some(activator) = &mut self.activator else {
            return;
        };
        let mut up = activator.open(now);
        let control = with_epoch(&mut self.controls, epoch);
        let (session, _) = control.link.open(up.hello.take().unwrap());
        activator.session = Some((epoch, session));
        activator.up.push_back((now, up));
    }

    /// Carries the messages of the link, in order, with random delays.
    fn carry_link(&mut self) {
        let now = self.now;
        let longest = if self.random.once_in(20) { 400 } else { 60 };
        let (up_delay, down_delay) = (self.random.period(60), self.random.period(longest));
        let Some(activator) = &mut self.activator else {
            return;
        };
        let Some((epoch, session)) = activator.session else {
            return;
        };
        let control = with_epoch(&mut self.controls, epoch);
        if let Some(up) = activator.next(now) {
            let earliest = activator.up.back().map_or(now, |(at, _)| *at);
            activator.up.push_back(((now + up_delay).max(earliest), up));
        }
        while activator.up.front().is_some_and(|(at, _)| *at <= now) {
            let (_, up) = activator.up.pop_front().unwrap();
            let events = control.link.receive(session, up, now);
            control.linked(events);
        }
        if let LinkNext::Send(down) = control.link.next(session) {
            let latest = activator.down.back().map_or(now, |(at, _)| *at);
            let mut at = now + down_delay;
            if self.without != Without::LinkInOrder {
                at = at.max(latest);
            }
            let place = activator.down.partition_point(|(other, _)| *other <= at);
            activator.down.insert(place, (at, *down));
        }
        while activator.down.front().is_some_and(|(at, _)| *at <= now) {
            let (_, down) = activator.down.pop_front().unwrap();
            if !activator.receive(down) {
                control.link.end(session);
                activator.close();
                return;
            }
        }
    }

    pub(super) fn lose_link(&mut self) {
        let Some(activator) = &mut self.activator else {
            return;
        };
        if let Some((epoch, session)) = activator.session {
            activator.close();
            if let Some(control) = self.control(epoch) {
                control.link.end(session);
            }
        }
    }

    /// The root learns of it at once, the agent at its next step. Messages in flight are lost.
    pub(super) fn lose_stream(&mut self, index: usize) {
        let now = self.now;
        let machine = &mut self.machines[index];
        let session = machine.session.take();
        machine.agent.close();
        machine.up.clear();
        machine.down.clear();
        machine.grace = None;
        let Some((epoch, session)) = session else {
            return;
        };
        if let Some(control) = self.control(epoch) {
            control.fleet.end(session, now);
        }
    }

    /// Delivers messages of a node's stream with random delays, in order.
    pub(super) fn deliver(&mut self, index: usize) {
        let now = self.now;
        let delay = self.random.period(300);
        let late = self.random.once_in(20);
        let machine = &mut self.machines[index];
        let Some((epoch, session)) = machine.session else {
            return;
        };
        let control = with_epoch(&mut self.controls, epoch);
        while machine.up.front().is_some_and(|(at, _)| *at <= now) {
            let (_, up) = machine.up.pop_front().unwrap();
            control.fleet.receive(session, up, now);
        }
        if let Next::Send(down) = control.fleet.next(session, now) {
            let earliest = machine.down.back().map_or(now, |(at, _)| *at);
            let grantless = down.grant.is_none() && down.entries.is_empty();
            if self.without == Without::GrantAfterAnswers && grantless {
                // A grant in the first message, although control has not answered for all entries.
                machine.kernel.lease_until = machine.clock(now) + LEASE;
            }
            if let Some(grant) = &down.grant
                && self.without == Without::GrantInOrder
                && now >= machine.frozen_until
            {
                machine.kernel.lease_until = Boottime(grant.beat_ns) + LEASE;
            }
            let at = if late { now + delay } else { now + TICK };
            machine.down.push_back((at.max(earliest), *down));
        }
    }

    pub(super) fn step_agent(&mut self, index: usize) {
        let (now, without) = (self.now, self.without);
        let activator = self.reaches_activator(index);
        let machine = &self.machines[index];
        if now < machine.frozen_until {
            return;
        }
        let clock = machine.clock(now);
        if machine.agent.is_silent(clock) {
            self.lose_stream(index);
        }
        if self.machines[index].session.is_none()
            && self.machines[index].control_cut_until <= now
            && let Some(epoch) = self.dialled()
        {
            self.greet(index, epoch);
        }
        let up_delay = self.random.period(60);
        let (machine, processes) = (&mut self.machines[index], &mut self.processes);
        machine.observe(now, processes);
        machine.probe(activator, now, without);
        machine.finish_grace(now, processes, without);
        while machine.grace.is_none() && machine.down.front().is_some_and(|(at, _)| *at <= now) {
            let (_, down) = machine.down.pop_front().unwrap();
            if !machine.receive(down, now, processes, without) {
                return self.lose_stream(index);
            }
        }
        if let Some(up) = machine.agent.next(clock) {
            let earliest = machine.up.back().map_or(now, |(at, _)| *at);
            machine.up.push_back(((now + up_delay).max(earliest), up));
        }
    }

    fn greet(&mut self, index: usize, epoch: u64) {
        let now = self.now;
        let machine = &mut self.machines[index];
        let clock = machine.clock(now);
        let mut up = machine.agent.open(clock);
        let hello = up.hello.take().unwrap();
        let control = with_epoch(&mut self.controls, epoch);
        let session = control.fleet.hello(hello, now);
        log(now, || format!("n{index} greets control {epoch}"));
        machine.session = Some((epoch, session));
        machine.up.push_back((now, up));
    }
}

/// The control at the other end of a stream: one that ends closes its streams first.
fn with_epoch(controls: &mut [Control], epoch: u64) -> &mut Control {
    let mut controls = controls.iter_mut();
    controls.find(|control| control.epoch == epoch).unwrap()
}
