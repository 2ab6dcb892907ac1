//! One node as its root sees it: what it follows, lacks and has acknowledged, and how long its lease can run.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use super::pods::Pods;
use super::{FOLLOWS_MAX, Session};
use crate::clock::Boottime;
use crate::lease::Terms;
use crate::proto::pod_status::Phase;
use crate::proto::{Down, Entry, Grant, NodeConfig, PodSpec, PodStatus, Stages};

/// Bytes of entries in one message; the rest follows in the next.
const ENTRIES_BYTES_MAX: usize = 64 * 1024;
/// Messages with entries that a node may leave unacknowledged; it gets nothing more until it has caught up.
const IN_FLIGHT_MAX: usize = 256;

/// What a message is made from.
pub(super) struct Sending<'a> {
    pub(super) terms: Terms,
    pub(super) epoch: u64,
    pub(super) config: &'a NodeConfig,
    pub(super) entries: &'a BTreeMap<u32, Entry>,
}

/// One VIP of one node.
#[derive(Debug, Default)]
struct Followed {
    /// The node has, or may have, some version of the entry.
    held: bool,
    /// This version or a newer one is in force.
    acknowledged: u64,
    /// Sequence number and version last put on the stream, not yet acknowledged.
    sent: Option<(u64, u64)>,
    /// When the lease ends under which versions before `sent` may be used.
    older_until: Option<Boottime>,
    /// A removal is among what the node lacks or has not acknowledged: sticky, so that it survives newer versions.
    settle: bool,
}

/// How a node's clock relates to ours.
#[derive(Debug, Default)]
enum Clock {
    /// It runs on our machine.
    #[default]
    Ours,
    /// Nanoseconds to add to get ours, once known.
    Foreign(Option<i128>),
}

#[derive(Debug, Default)]
pub(super) struct Peer {
    session: Option<Session>,
    /// When a node without a stream is declared down.
    leaves_at: Option<Boottime>,
    granted_at: Option<Boottime>,
    beat: Option<Boottime>,
    clock: Clock,
    seq: u64,
    config_owed: bool,
    follows: BTreeMap<u32, Followed>,
    lacking: BTreeSet<u32>,
    in_flight: BTreeMap<u64, Vec<u32>>,
    pods: Pods,
}

impl Peer {
    pub(super) fn session(&self) -> Option<Session> {
        self.session
    }

    pub(super) fn leaves_at(&self) -> Option<Boottime> {
        self.leaves_at
    }

    pub(super) fn follows(&self) -> Vec<u32> {
        self.follows.keys().copied().collect()
    }

    /// A new stream: what the node holds may be any version, under the lease that it was granted last.
    pub(super) fn open(&mut self, session: Session, follows: &[u32], foreign: bool) {
        let held = |vip: &u32| {
            (
                *vip,
                Followed {
                    held: true,
                    settle: true,
                    ..Followed::default()
                },
            )
        };
        self.follows = follows.iter().map(held).collect();
        self.lacking = follows.iter().copied().collect();
        self.in_flight.clear();
        self.session = Some(session);
        self.leaves_at = None;
        self.beat = None;
        self.clock = if foreign {
            Clock::Foreign(None)
        } else {
            Clock::Ours
        };
        self.seq = 0;
        self.config_owed = true;
        self.pods.open();
    }

    /// The stream is over. Returns when the node's lease is.
    pub(super) fn close(&mut self, terms: Terms, now: Boottime) -> Boottime {
        self.session = None;
        let end = self.leased_until(terms).unwrap_or(now).max(now);
        self.leaves_at = Some(end);
        end
    }

    fn leased_until(&self, terms: Terms) -> Option<Boottime> {
        self.granted_at.map(|sent| terms.usable_until(sent))
    }

    /// Everything up to `seq` is in force. True when that was news.
    pub(super) fn acknowledge(&mut self, seq: u64) -> bool {
        if seq > self.seq {
            return false;
        }
        let later = self.in_flight.split_off(&(seq + 1));
        let done = std::mem::replace(&mut self.in_flight, later);
        for vip in done.values().flatten() {
            let Some(followed) = self.follows.get_mut(vip) else {
                continue;
            };
            if let Some((_, version)) = followed.sent.take_if(|(sent, _)| *sent <= seq) {
                followed.acknowledged = version;
                followed.older_until = None;
                followed.settle &= self.lacking.contains(vip);
            }
        }
        !done.is_empty()
    }

    /// Follows a VIP, or sends it again. False past the limit.
    pub(super) fn want(&mut self, vip: u32) -> bool {
        if self.follows.len() >= FOLLOWS_MAX && !self.follows.contains_key(&vip) {
            return false;
        }
        self.follows.entry(vip).or_default();
        self.lacking.insert(vip);
        true
    }

    pub(super) fn unfollow(&mut self, vip: u32) {
        self.follows.remove(&vip);
        self.lacking.remove(&vip);
    }

    /// A newer version of a followed VIP is known. Returns the stream to wake.
    pub(super) fn lacks(&mut self, vip: u32, settle: bool) -> Option<Session> {
        let followed = self.follows.get_mut(&vip)?;
        followed.settle |= settle;
        self.lacking.insert(vip);
        self.session
    }

    /// Until when the node may use an older version of a VIP's entry than `version`, if it may at all.
    pub(super) fn uses_older(&self, vip: u32, version: u64, terms: Terms) -> Option<Boottime> {
        let followed = self.follows.get(&vip)?;
        if followed.acknowledged >= version || !followed.held {
            return None;
        }
        if self.lacking.contains(&vip) {
            self.leased_until(terms)
        } else {
            followed.older_until
        }
    }

    pub(super) fn beat(&mut self, at: Boottime, now: Boottime) {
        self.beat = Some(at);
        if let Clock::Foreign(offset_ns) = &mut self.clock {
            let offset = i128::from(now.0) - i128::from(at.0);
            // The smallest difference seen has the least of the network's delay in it.
            *offset_ns = Some(offset_ns.map_or(offset, |least| least.min(offset)));
        }
    }

    /// A moment of the node's clock on ours.
    pub(super) fn here(&self, at: Boottime) -> Boottime {
        let Clock::Foreign(Some(offset_ns)) = self.clock else {
            return at;
        };
        let shifted = i128::from(at.0) + offset_ns;
        Boottime(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX))
    }

    /// Takes in a pod's state and gives it back on our clock; the last word on a pod forgets it.
    pub(super) fn pod(&mut self, mut status: PodStatus) -> PodStatus {
        if status.phase() == Phase::Gone {
            self.pods.gone(&status.uid);
        }
        let here = |ns: u64| {
            if ns == 0 {
                0
            } else {
                self.here(Boottime(ns)).0
            }
        };
        status.stages = status.stages.map(|stages| Stages {
            received_ns: here(stages.received_ns),
            cni_begin_ns: here(stages.cni_begin_ns),
            cni_end_ns: here(stages.cni_end_ns),
            started_ns: here(stages.started_ns),
            ready_ns: here(stages.ready_ns),
        });
        status
    }

    pub(super) fn run(&mut self, pod: PodSpec) -> Option<Session> {
        self.pods.run(pod);
        self.session
    }

    pub(super) fn sync_pods(&mut self, pods: Vec<PodSpec>) -> Option<Session> {
        self.pods.sync(pods);
        self.session
    }

    /// The next message, if the node lacks anything and keeps up.
    pub(super) fn next(&mut self, from: &Sending<'_>, now: Boottime) -> Option<Down> {
        let something = self.config_owed
            || self.pods.are_lacking()
            || !self.lacking.is_empty()
            || self.beat.is_some();
        if !something || self.in_flight.len() >= IN_FLIGHT_MAX {
            return None;
        }
        self.seq += 1;
        let config = std::mem::take(&mut self.config_owed).then(|| from.config.clone());
        let (run, run_complete) = self.pods.take();
        let entries = self.take_entries(from);
        // A grant must not overtake a change.
        let beat = if self.lacking.is_empty() {
            self.beat.take()
        } else {
            None
        };
        let grant = beat.map(|beat| {
            self.granted_at = Some(now);
            Grant {
                beat_ns: beat.0,
                lease_ms: from.terms.lease_ms(),
                epoch: from.epoch,
            }
        });
        Some(Down {
            seq: self.seq,
            entries,
            config,
            run,
            grant,
            run_complete,
        })
    }

    /// Up to [`ENTRIES_BYTES_MAX`] of what the node lacks, removals first.
    fn take_entries(&mut self, from: &Sending<'_>) -> Vec<Entry> {
        if self.lacking.is_empty() {
            return Vec::new();
        }
        let settles = |vip: &u32| {
            self.follows
                .get(vip)
                .is_some_and(|followed| followed.settle)
        };
        let (first, then): (Vec<u32>, Vec<u32>) = self.lacking.iter().partition(|vip| settles(vip));
        let older_until = self.leased_until(from.terms);
        let mut entries = Vec::new();
        let mut bytes = 0;
        for vip in first.into_iter().chain(then) {
            if bytes >= ENTRIES_BYTES_MAX {
                break;
            }
            self.lacking.remove(&vip);
            let Some(followed) = self.follows.get_mut(&vip) else {
                continue;
            };
            let unknown = || Entry {
                vip,
                gone: true,
                ..Entry::default()
            };
            let mut entry = from.entries.get(&vip).cloned().unwrap_or_else(unknown);
            entry.settle |= followed.settle;
            followed.older_until = if followed.held { older_until } else { None };
            followed.held = true;
            followed.sent = Some((self.seq, entry.version));
            bytes += entry.encoded_len();
            entries.push(entry);
        }
        self.in_flight
            .insert(self.seq, entries.iter().map(|entry| entry.vip).collect());
        entries
    }
}
