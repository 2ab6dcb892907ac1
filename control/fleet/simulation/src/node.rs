//! A node: the agent with the real node core, its clock, its stream with late messages, and the lease in its kernel.

use std::collections::VecDeque;
use std::time::Duration;

use dormouse_fleet::proto::{Down, Up};
use dormouse_fleet::root::Next;
use dormouse_fleet::{Boottime, Stale, node};

use crate::Random;

/// Once in so many messages, the node's are late.
const LATE: u64 = 20;
/// Longest delay of a late message to a node, milliseconds.
const LATE_MS: u64 = 300;
/// Longest delay of a message from a node, milliseconds.
const UP_MS: u64 = 60;

/// A rule of a node that a run leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A grant is in force after the entries before it.
    GrantInOrder,
    /// No grant is sent before control has answered for all entries.
    GrantAfterAnswers,
    /// Entries are used without a lease while neither control nor an activator answers.
    StaleMode,
    /// Entries are used without a lease only while no activator answers.
    ActivatorFirst,
    /// The answer of an activator ends that.
    AnswerEndsStale,
    /// A grant ends that.
    GrantEndsStale,
}

/// A node.
pub struct Node<Session> {
    /// The agent.
    pub agent: node::Node,
    /// The stream, if one is open.
    pub session: Option<Session>,
    /// The end of the lease in the kernel, by the node's clock.
    pub lease_until: Boottime,
    /// Entries are used also after the end of the lease.
    pub is_stale: bool,
    /// The agent and its messages wait until then; the kernel goes on.
    pub frozen_until: Boottime,
    /// The network to control is cut until then.
    pub control_cut_until: Boottime,
    /// The network to the activators is cut until then.
    pub activator_cut_until: Boottime,
    lease: Duration,
    without: Option<Rule>,
    stale: Stale,
    probe_due: Boottime,
    /// Since when the running agent could have reached an activator; none: it could not when it ran last.
    reachable: Option<Boottime>,
    /// When the agent ran last.
    ran_at: Boottime,
    /// Rate of its clock against the root's, in parts per million.
    drift_ppm: i64,
    booted: Boottime,
    up: VecDeque<(Boottime, Up)>,
    down: VecDeque<(Boottime, Down)>,
}

impl<Session> Node<Session> {
    /// A node without a stream, whose clock is up to 900 parts per million too fast or too slow.
    pub fn new(
        agent: node::Node,
        lease: Duration,
        without: Option<Rule>,
        random: &mut Random,
    ) -> Self {
        let drift = i64::try_from(random.below(1_800)).unwrap_or(0);
        Self {
            agent,
            session: None,
            lease_until: Boottime(0),
            is_stale: false,
            frozen_until: Boottime(0),
            control_cut_until: Boottime(0),
            activator_cut_until: Boottime(0),
            lease,
            without,
            stale: Stale::new(false, lease),
            probe_due: Boottime(0),
            reachable: Some(Boottime(0)),
            ran_at: Boottime(0),
            drift_ppm: drift - 900,
            booted: Boottime(0),
            up: VecDeque::new(),
            down: VecDeque::new(),
        }
    }

    /// Its own `CLOCK_BOOTTIME`.
    pub fn clock(&self, now: Boottime) -> Boottime {
        let on = i128::from(now.0 - self.booted.0);
        let drift = on * i128::from(self.drift_ppm) / 1_000_000;
        Boottime(u64::try_from(on + drift).unwrap_or(0))
    }

    /// Whether the lease is not over.
    pub fn is_leased(&self, now: Boottime) -> bool {
        self.clock(now) < self.lease_until
    }

    /// The agent is killed, and this one started; the kernel goes on.
    pub fn restart(&mut self, agent: node::Node) {
        self.agent = agent;
        self.stale = Stale::new(self.is_stale, self.lease);
    }

    /// The machine is switched off and on: its kernel has no lease, and its clock begins again. [`Node::restart`] follows.
    pub fn reboot(&mut self, now: Boottime) {
        (self.lease_until, self.is_stale) = (Boottime(0), false);
        (self.booted, self.probe_due) = (now, Boottime(0));
    }

    /// The stream is over, with the messages in flight: returns it.
    pub fn close(&mut self) -> Option<Session> {
        self.agent.close();
        self.up.clear();
        self.down.clear();
        self.session.take()
    }

    /// Probes the activators if that is due; `answers`: one can be reached.
    pub fn probe(&mut self, answers: bool, now: Boottime) {
        self.ran_at = now;
        if answers {
            self.reachable.get_or_insert(now);
        } else {
            self.reachable = None;
        }
        let clock = self.clock(now);
        let is_due = self.stale.is_due(self.session.is_some(), clock);
        if self.is_without(Rule::StaleMode) || !is_due {
            return;
        }
        if self.is_without(Rule::ActivatorFirst) {
            self.is_stale = true;
        }
        if self.probe_due > clock {
            return;
        }
        self.probe_due = clock + self.stale.interval();
        match self.stale.probed(answers, clock) {
            Some(false) if self.is_without(Rule::AnswerEndsStale) => {}
            Some(stale) => self.is_stale = stale,
            None => {}
        }
    }

    /// Whether the node may use entries that control has replaced: it could reach neither control nor an activator when
    /// its agent ran last, or less than two probes and a step of this length before.
    pub fn is_alone(&self, tick: Duration) -> bool {
        let just = self.stale.interval() * 2 + tick;
        self.reachable
            .is_none_or(|since| self.ran_at.since(since) <= just)
    }

    /// A grant is in force until then, by the node's clock.
    pub fn granted(&mut self, until: Boottime, now: Boottime) {
        self.lease_until = until;
        if !self.is_without(Rule::GrantEndsStale) {
            self.is_stale = false;
        }
        self.stale.granted(self.lease, self.clock(now));
    }

    /// A message that has arrived from the node.
    pub fn received(&mut self, now: Boottime) -> Option<Up> {
        let (_, up) = self.up.pop_front_if(|(at, _)| *at <= now)?;
        Some(up)
    }

    /// Sends the node what the root has for it, after this step at the earliest.
    pub fn send(&mut self, next: Next, now: Boottime, tick: Duration, random: &mut Random) {
        let delay = random.period(LATE_MS);
        let is_late = random.once_in(LATE);
        let Next::Send(down) = next else { return };
        let without_entries = down.grant.is_none() && down.entries.is_empty();
        if self.is_without(Rule::GrantAfterAnswers) && without_entries {
            // A grant in the first message, although control has not answered for all entries.
            self.lease_until = self.clock(now) + self.lease;
        }
        if let Some(grant) = &down.grant
            && self.is_without(Rule::GrantInOrder)
            && now >= self.frozen_until
        {
            self.lease_until = Boottime(grant.beat_ns) + self.lease;
        }
        let at = now + if is_late { delay } else { tick };
        let earliest = self.down.back().map_or(now, |(at, _)| *at);
        self.down.push_back((at.max(earliest), *down));
    }

    /// A message that has arrived at the node.
    pub fn arrived(&mut self, now: Boottime) -> Option<Down> {
        let (_, down) = self.down.pop_front_if(|(at, _)| *at <= now)?;
        Some(down)
    }

    /// The agent sends what it has to report.
    pub fn report(&mut self, now: Boottime, random: &mut Random) {
        let delay = random.period(UP_MS);
        if let Some(up) = self.agent.next(self.clock(now)) {
            let earliest = self.up.back().map_or(now, |(at, _)| *at);
            self.up.push_back(((now + delay).max(earliest), up));
        }
    }

    /// The stream has opened, and the agent sends the rest of its first message.
    pub fn opened(&mut self, session: Session, first: Up, now: Boottime) {
        self.session = Some(session);
        self.up.push_back((now, first));
    }

    fn is_without(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }
}
