//! The streams of nodes and of the activator: opened, carried late and in order, lost.

use std::time::Duration;

use dormouse_activator::link::root::Next as LinkNext;

use super::activator::Activator;
use super::control::Control;
use super::world::World;
use super::{TICK, Without, log};

impl World {
    /// The control that a new stream reaches.
    fn dialled(&mut self) -> Option<u64> {
        let count = self.controls.len();
        (count > 0).then(|| self.controls[self.random.index(count)].epoch)
    }

    pub(super) fn reaches_activator(&self, index: usize) -> bool {
        self.machines[index].node.activator_cut_until <= self.now
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
        machine.grace = None;
        let session = machine.node.close();
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
        let node = &mut self.machines[index].node;
        let Some((epoch, session)) = node.session else {
            return;
        };
        let control = with_epoch(&mut self.controls, epoch);
        while let Some(up) = node.received(now) {
            control.fleet.receive(session, up, now);
        }
        let next = control.fleet.next(session, now);
        node.send(next, now, TICK, &mut self.random);
    }

    pub(super) fn step_agent(&mut self, index: usize) {
        let (now, without) = (self.now, self.without);
        let activator = self.reaches_activator(index);
        let node = &self.machines[index].node;
        if now < node.frozen_until {
            return;
        }
        if node.agent.is_silent(node.clock(now)) {
            self.lose_stream(index);
        }
        let node = &self.machines[index].node;
        if node.session.is_none()
            && node.control_cut_until <= now
            && let Some(epoch) = self.dialled()
        {
            self.greet(index, epoch);
        }
        let (machine, processes) = (&mut self.machines[index], &mut self.processes);
        machine.observe(now, processes);
        machine.node.probe(activator, now);
        machine.finish_grace(now, processes);
        while machine.grace.is_none()
            && let Some(down) = machine.node.arrived(now)
        {
            if !machine.receive(down, now, processes, without) {
                return self.lose_stream(index);
            }
        }
        machine.node.report(now, &mut self.random);
    }

    fn greet(&mut self, index: usize, epoch: u64) {
        let now = self.now;
        let node = &mut self.machines[index].node;
        let mut up = node.agent.open(node.clock(now));
        let hello = up.hello.take().unwrap();
        let control = with_epoch(&mut self.controls, epoch);
        let session = control.fleet.hello(hello, now);
        log(now, || format!("n{index} greets control {epoch}"));
        node.opened((epoch, session), up, now);
    }
}

/// The control at the other end of a stream: one that ends closes its streams first.
fn with_epoch(controls: &mut [Control], epoch: u64) -> &mut Control {
    let mut controls = controls.iter_mut();
    controls.find(|control| control.epoch == epoch).unwrap()
}
