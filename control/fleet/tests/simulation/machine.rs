//! A node of the simulation: the kernel with its maps, and the agent with the real node core.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use dormouse_fleet::node::{DropEnd, Node};
use dormouse_fleet::proto::{Down, Up};
use dormouse_fleet::root::Session;
use dormouse_fleet::{Boottime, Stale};

use super::{IDLE, TERMS, TICK, Without};

/// Longest time a kernel program takes from reading an entry to sending the packet.
const GRACE: Duration = Duration::from_millis(60);

/// The kernel of a node, which handles packets also while the agent is frozen.
#[derive(Default)]
pub(super) struct Kernel {
    /// Backends of each VIP in serve mode.
    pub(super) words: BTreeMap<u32, BTreeSet<u64>>,
    pub(super) lease_until: Boottime,
    /// Entries are used also after the end of the lease.
    pub(super) stale: bool,
    /// Words that messages replaced.
    replaced: Fading,
    /// Words of dropped entries.
    dropped: Fading,
}

/// Replaced words that a running program may still use until then.
#[derive(Default)]
struct Fading {
    words: BTreeMap<u32, BTreeSet<u64>>,
    until: Boottime,
}

pub(super) struct Machine {
    pub(super) kernel: Kernel,
    pub(super) agent: Node,
    pub(super) stale: Stale,
    probe_due: Boottime,
    /// Since when the running agent could have reached an activator; none: it could not when it ran last.
    reachable: Option<Boottime>,
    /// When the agent ran last.
    ran_at: Boottime,
    pub(super) session: Option<Session>,
    pub(super) frozen_until: Boottime,
    /// The network to control is cut until then.
    pub(super) control_cut_until: Boottime,
    /// The network to the activators is cut until then.
    pub(super) activator_cut_until: Boottime,
    /// Rate of its clock against the root's, in parts per million.
    drift_ppm: i64,
    pub(super) up: VecDeque<(Boottime, Up)>,
    pub(super) down: VecDeque<(Boottime, Down)>,
    /// A message whose entries are applied, while the kernel may still use the replaced words.
    pub(super) grace: Option<Grace>,
    /// Unused entries that are being dropped, and the end of their grace period.
    drops: Option<(Boottime, Vec<u32>)>,
    /// Entries that were dropped.
    pub(super) dropped: usize,
}

/// The rest of a message, to be applied when no program can use the replaced words.
pub(super) struct Grace {
    until: Boottime,
    seq: u64,
    lease_until: Option<Boottime>,
}

impl Kernel {
    /// The pods to which a program may send packets to each VIP.
    pub(super) fn usable(&self, now: Boottime) -> impl Iterator<Item = (&u32, &BTreeSet<u64>)> {
        let fading = [&self.replaced, &self.dropped].into_iter();
        let fading = fading.filter(move |fading| now < fading.until);
        self.words
            .iter()
            .chain(fading.flat_map(|fading| &fading.words))
    }
}

fn agent(index: usize, installed: &[u32]) -> Node {
    Node::new(format!("n{index}"), "boot".into(), "0".into(), installed)
}

impl Machine {
    pub(super) fn new(index: usize, drift_ppm: i64) -> Self {
        Self {
            kernel: Kernel::default(),
            agent: agent(index, &[]),
            stale: Stale::new(false, TERMS.lease),
            probe_due: Boottime(0),
            reachable: Some(Boottime(0)),
            ran_at: Boottime(0),
            session: None,
            frozen_until: Boottime(0),
            control_cut_until: Boottime(0),
            activator_cut_until: Boottime(0),
            drift_ppm,
            up: VecDeque::new(),
            down: VecDeque::new(),
            grace: None,
            drops: None,
            dropped: 0,
        }
    }

    pub(super) fn clock(&self, now: Boottime) -> Boottime {
        let drift = i128::from(now.0) * i128::from(self.drift_ppm) / 1_000_000;
        Boottime(u64::try_from(i128::from(now.0) + drift).unwrap())
    }

    /// The agent is killed and started again; the kernel goes on.
    pub(super) fn restart(&mut self, index: usize) {
        let installed: Vec<u32> = self.kernel.words.keys().copied().collect();
        self.agent = agent(index, &installed);
        self.stale = Stale::new(self.kernel.stale, TERMS.lease);
        self.grace = None;
        self.drops = None;
    }

    /// Begins to drop entries without use: the kernel sends their connections to the activator.
    pub(super) fn begin_drops(&mut self, now: Boottime, without: Without) {
        if self.drops.is_some() || self.session.is_none() {
            return;
        }
        let vips = self.agent.begin_drops(IDLE, 2, self.clock(now));
        let (kernel, mut words) = (&mut self.kernel, BTreeMap::new());
        for vip in &vips {
            let old = kernel.words.insert(*vip, BTreeSet::new());
            words.extend(old.map(|old| (*vip, old)));
        }
        kernel.dropped = Fading {
            words,
            until: now + GRACE,
        };
        let grace = if without == Without::GraceBeforeDrop {
            Duration::ZERO
        } else {
            GRACE
        };
        self.drops = (!vips.is_empty()).then_some((now + grace, vips));
    }

    /// Ends drops whose grace period is over.
    pub(super) fn end_drops(&mut self, now: Boottime) {
        let Some((_, vips)) = self.drops.take_if(|(until, _)| *until <= now) else {
            return;
        };
        let clock = self.clock(now);
        for vip in vips {
            if self.agent.end_drop(vip, false, clock) == DropEnd::Dropped {
                self.kernel.words.remove(&vip);
                self.dropped += 1;
            }
        }
    }

    /// Probes the activators if that is due; `answers`: one can be reached.
    pub(super) fn probe(&mut self, answers: bool, now: Boottime, without: Without) {
        self.ran_at = now;
        if answers {
            self.reachable.get_or_insert(now);
        } else {
            self.reachable = None;
        }
        let clock = self.clock(now);
        if without == Without::StaleMode || !self.stale.is_due(self.session.is_some(), clock) {
            return;
        }
        if without == Without::ActivatorFirst {
            self.kernel.stale = true;
        }
        if self.probe_due > clock {
            return;
        }
        self.probe_due = clock + self.stale.interval();
        match self.stale.probed(answers, clock) {
            Some(false) if without == Without::AnswerEndsStale => {}
            Some(stale) => self.kernel.stale = stale,
            None => {}
        }
    }

    /// Whether the node may use entries that control has replaced: it could reach neither control nor an activator when
    /// its agent ran last, or only just.
    pub(super) fn is_alone(&self) -> bool {
        let just = self.stale.interval() * 2 + TICK;
        self.reachable
            .is_none_or(|since| self.ran_at.since(since) <= just)
    }

    /// Ends the grace period of the last message, if it is over: its lease, its acknowledgement.
    pub(super) fn finish_grace(&mut self, now: Boottime, without: Without) {
        if let Some(grace) = self.grace.take_if(|grace| grace.until <= now) {
            self.grant(grace.lease_until, now, without);
            self.agent.applied(grace.seq);
        }
    }

    /// Applies a message as an agent does: entries, grace period, lease, acknowledgement.
    pub(super) fn receive(&mut self, down: Down, now: Boottime, without: Without) {
        let clock = self.clock(now);
        let all = down.entries.clone();
        let step = self.agent.receive(down, clock).unwrap();
        let entries = if without == Without::DroppedEntriesIgnored {
            all
        } else {
            step.entries
        };
        if now >= self.kernel.replaced.until {
            self.kernel.replaced.words.clear();
        }
        for entry in entries {
            let (pods, _) = entry.backends.as_chunks::<8>();
            let pods = pods.iter().map(|pod| u64::from_be_bytes(*pod)).collect();
            let old = self.kernel.words.insert(entry.vip, pods);
            let old = old.map(|old| (entry.vip, old));
            self.kernel.replaced.words.extend(old);
        }
        let from_receipt = without == Without::LeaseFromSending;
        let lease_until = step.lease_until.map(|until| {
            if from_receipt {
                clock + TERMS.lease
            } else {
                until
            }
        });
        if step.grace {
            self.kernel.replaced.until = now + GRACE;
        }
        if !step.grace || without == Without::GraceBeforeGrant {
            self.grant(lease_until, now, without);
        }
        if !step.grace || without == Without::AcknowledgeInForce {
            self.agent.applied(step.seq);
        }
        self.grace = step.grace.then_some(Grace {
            until: now + GRACE,
            seq: step.seq,
            lease_until,
        });
    }

    fn grant(&mut self, lease_until: Option<Boottime>, now: Boottime, without: Without) {
        let Some(until) = lease_until else { return };
        self.kernel.lease_until = until;
        if without != Without::GrantEndsStale {
            self.kernel.stale = false;
        }
        self.stale.granted(TERMS.lease, self.clock(now));
    }
}
