//! A node of the simulation, and the maps of its kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_fleet::node::{self, DropEnd};
use dormouse_fleet::proto::{Count, Down, Entry, entry::Mode};
use dormouse_fleet::root::Session;
use dormouse_fleet::{Backend, Boottime};
use dormouse_fleet_simulation::{Node, Random};

use super::{FOLLOWS_MAX, IDLE, TERMS, VIPS, Without};

/// Longest time a kernel program takes from reading an entry to sending the packet.
const GRACE: Duration = Duration::from_millis(60);

/// Shortest time in which a VIP that does not exist raises no miss: longer than a grace period.
const MUTE: Duration = Duration::from_secs(1);

/// An entry in the maps.
#[derive(Debug, Default)]
pub(super) struct Word {
    /// In mode serve.
    pub(super) serves: bool,
    /// The backends, with their weights.
    pub(super) pods: BTreeMap<u64, u16>,
}

/// The kernel of a node, which handles packets also while the agent is frozen.
#[derive(Default)]
pub(super) struct Kernel {
    pub(super) words: BTreeMap<u32, Word>,
    /// Words that messages replaced.
    replaced: Fading,
    /// Words of dropped entries.
    dropped: Fading,
}

/// Replaced words that a running program may still use until then.
#[derive(Default)]
struct Fading {
    words: BTreeMap<u32, Word>,
    until: Boottime,
}

pub(super) struct Machine {
    pub(super) kernel: Kernel,
    pub(super) node: Node<Session>,
    /// A message whose entries are applied, while the kernel may still use the replaced words.
    pub(super) grace: Option<Grace>,
    /// Unused entries that are being dropped, and the end of their grace period.
    drops: Option<(Boottime, Vec<u32>)>,
    /// Entries that were dropped.
    pub(super) dropped: usize,
    /// A VIP to which the node's pods send all the time; of VIPs used at the same time, the last one is dropped last.
    pub(super) favourite: u32,
    /// When the entry of each VIP was received first.
    followed_since: BTreeMap<u32, Boottime>,
    /// VIPs that did not exist a moment ago, and when packets to them raise misses again.
    muted: BTreeMap<u32, Boottime>,
}

/// The rest of a message, to be applied when no program can use the replaced words.
pub(super) struct Grace {
    until: Boottime,
    seq: u64,
    lease_until: Option<Boottime>,
}

impl Kernel {
    /// The entries by which a program may send packets to each VIP. `stale`: also those in mode proxy that have backends.
    pub(super) fn usable(&self, now: Boottime, stale: bool) -> impl Iterator<Item = (&u32, &Word)> {
        let fading = [&self.replaced, &self.dropped].into_iter();
        let fading = fading.filter(move |fading| now < fading.until);
        let all = self
            .words
            .iter()
            .chain(fading.flat_map(|fading| &fading.words));
        all.filter(move |(_, word)| word.serves || stale)
    }
}

fn agent(index: usize, installed: &[u32]) -> node::Node {
    let mut agent = node::Node::new(format!("n{index}"), "boot".into(), "0".into(), installed);
    agent.limit_follows(FOLLOWS_MAX);
    agent
}

impl Machine {
    pub(super) fn new(index: usize, without: Without, random: &mut Random) -> Self {
        Self {
            kernel: Kernel::default(),
            node: Node::new(agent(index, &[]), TERMS.lease, without.of_node(), random),
            grace: None,
            drops: None,
            dropped: 0,
            favourite: VIPS - 1,
            followed_since: BTreeMap::new(),
            muted: BTreeMap::new(),
        }
    }

    /// The agent is killed and started again; the kernel goes on.
    pub(super) fn restart(&mut self, index: usize) {
        let installed: Vec<u32> = self.kernel.words.keys().copied().collect();
        self.node.restart(agent(index, &installed));
        self.grace = None;
        self.drops = None;
        // Uses are unknown to the next agent: all entries are as new to it.
        self.followed_since.clear();
        self.muted.clear();
    }

    /// The agent counts the connections to its favourite.
    pub(super) fn count(&mut self, now: Boottime, without: Without) {
        let vip = self.favourite;
        if self.kernel.words.contains_key(&vip) && without != Without::UsesCounted {
            let count = Count {
                vip,
                open: 1,
                ..Count::default()
            };
            self.node.agent.count(count, self.node.clock(now));
        }
    }

    /// Begins to drop entries without use, and above the limit those used least recently: the kernel sends their connections to the
    /// activator. Fails if the favourite goes before one that was received a while ago.
    pub(super) fn begin_drops(&mut self, now: Boottime, without: Without) -> Result<(), String> {
        if self.drops.is_some() || self.node.session.is_none() {
            return Ok(());
        }
        for vip in self.kernel.words.keys() {
            self.followed_since.entry(*vip).or_insert(now);
        }
        let vips = self.node.agent.begin_drops(IDLE, 2, self.node.clock(now));
        let older = |vip: &u32| !vips.contains(vip) && self.followed_since[vip] + IDLE / 4 < now;
        if vips.contains(&self.favourite) && self.kernel.words.keys().any(older) {
            return Err(format!("VIP {} is used, and dropped first", self.favourite));
        }
        let (kernel, mut words) = (&mut self.kernel, BTreeMap::new());
        for vip in &vips {
            let old = kernel.words.insert(*vip, Word::default());
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
        Ok(())
    }

    /// A packet to the VIP: the agent learns of it if there is no entry.
    pub(super) fn meet(&mut self, vip: u32, now: Boottime) {
        let muted = self.muted.get(&vip).is_some_and(|until| now < *until);
        if !muted && !self.kernel.words.contains_key(&vip) {
            self.node.agent.missed(vip, self.node.clock(now));
        }
    }

    /// Whether the VIP's entry is being dropped.
    pub(super) fn drops(&self, vip: u32) -> bool {
        let vips = self.drops.iter().flat_map(|(_, vips)| vips);
        vips.copied().any(|dropped| dropped == vip)
    }

    /// Ends drops whose grace period is over.
    pub(super) fn end_drops(&mut self, now: Boottime) {
        let Some((_, vips)) = self.drops.take_if(|(until, _)| *until <= now) else {
            return;
        };
        let clock = self.node.clock(now);
        for vip in vips {
            if self.node.agent.end_drop(vip, false, clock) == DropEnd::Dropped {
                self.kernel.words.remove(&vip);
                self.followed_since.remove(&vip);
                self.dropped += 1;
            }
        }
    }

    /// Ends the grace period of the last message, if it is over: its lease, its acknowledgement.
    pub(super) fn finish_grace(&mut self, now: Boottime) {
        if let Some(grace) = self.grace.take_if(|grace| grace.until <= now) {
            self.grant(grace.lease_until, now);
            self.node.agent.applied(grace.seq);
        }
    }

    /// Applies a message as an agent does: entries, grace period, lease, acknowledgement.
    pub(super) fn receive(&mut self, down: Down, now: Boottime, without: Without) {
        let clock = self.node.clock(now);
        let received = down.entries.clone();
        let step = self.node.agent.receive(down, clock).unwrap();
        let mut entries = step.entries;
        match without {
            Without::DroppedEntriesIgnored => entries = received,
            Without::SplitsComposedAgain => {
                let is_received = |entry: &Entry| received.iter().any(|one| one.vip == entry.vip);
                entries.retain(is_received);
            }
            _ => {}
        }
        if now >= self.kernel.replaced.until {
            self.kernel.replaced.words.clear();
        }
        for entry in entries {
            // The next packet to a VIP that does not exist is a miss again.
            let old = if entry.gone {
                self.followed_since.remove(&entry.vip);
                self.muted.insert(entry.vip, now + MUTE);
                self.kernel.words.remove(&entry.vip)
            } else {
                if !self.kernel.words.contains_key(&entry.vip) {
                    self.followed_since.insert(entry.vip, now);
                }
                self.kernel.words.insert(entry.vip, word(&entry))
            };
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
            self.grant(lease_until, now);
        }
        if !step.grace || without == Without::AcknowledgeInForce {
            self.node.agent.applied(step.seq);
        }
        self.grace = step.grace.then_some(Grace {
            until: now + GRACE,
            seq: step.seq,
            lease_until,
        });
    }

    fn grant(&mut self, until: Option<Boottime>, now: Boottime) {
        if let Some(until) = until {
            self.node.granted(until, now);
        }
    }
}

fn word(entry: &Entry) -> Word {
    let backends = Backend::unpack(&entry.backends).unwrap().into_iter();
    let pods = backends.map(|backend| (u64::from(backend.host), backend.weight));
    Word {
        serves: entry.mode() == Mode::Serve,
        pods: pods.collect(),
    }
}
