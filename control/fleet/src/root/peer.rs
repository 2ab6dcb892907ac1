//! The root's state of one node: the VIPs that it follows, the changes to send, its acknowledgements, and its lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prost::Message;

use super::pods::Pods;
use super::{FOLLOWS_MAX, Session};
use crate::clock::Boottime;
use crate::lease::Terms;
use crate::proto::pod_status::Phase;
use crate::proto::{Down, Entry, Grant, NodeConfig, PodSpec, PodStatus, Stages};

/// Limit of the entries in one message, in bytes; the rest goes into the next.
const ENTRIES_BYTES_MAX: usize = 64 * 1024;
/// Limit of unacknowledged messages with entries; at the limit, nothing is sent to the node.
const IN_FLIGHT_MAX: usize = 256;
/// Longest time for which a change that is not urgent waits for others, or for anything else that is sent to the node.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// The root's state from which messages are made.
pub(super) struct RootState<'a> {
    pub(super) terms: Terms,
    pub(super) epoch: u64,
    pub(super) config: &'a NodeConfig,
    pub(super) entries: &'a BTreeMap<u32, Entry>,
}

/// One VIP that one node follows.
#[derive(Debug, Default)]
struct Followed {
    /// The node has, or may have, some version of the entry.
    installed: bool,
    /// This version or a newer one is in force on the node.
    acknowledged: u64,
    /// The last entry sent, until it is acknowledged.
    sent: Option<Sent>,
    /// End of the lease under which versions before `sent` may be used.
    older_until: Option<Boottime>,
    /// An entry with `settle` is pending or unacknowledged. It stays set when a newer version without the flag replaces
    /// that entry.
    settle: bool,
}

/// An entry that was sent and is not acknowledged.
#[derive(Debug)]
struct Sent {
    /// Sequence number of its message.
    seq: u64,
    version: u64,
    /// It is the answer that no such VIP exists: the node stops following it.
    gone: bool,
}

/// The effects of an acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    /// It acknowledges messages with entries.
    pub(super) any: bool,
    /// The VIPs of their entries.
    pub(super) vips: Vec<u32>,
    /// VIPs that do not exist and that the node therefore no longer follows.
    pub(super) gone: Vec<u32>,
}

/// The relation of a node's clock to the root's.
#[derive(Debug, Default)]
enum Clock {
    /// Both are on one machine.
    #[default]
    Local,
    /// Nanoseconds to add to get the root's time, once known.
    Remote(Option<i128>),
}

/// When pending entries and pods are sent, if nothing else is sent before.
#[derive(Debug, Default, Clone, Copy)]
enum Haste {
    /// At once.
    #[default]
    Urgent,
    /// [`LINGER`] after [`Peer::next`] is called again.
    Linger,
    /// At this time.
    Until(Boottime),
}

/// The root's state of one node.
#[derive(Debug, Default)]
pub(super) struct Peer {
    session: Option<Session>,
    /// For a node without a stream: the time at which it is declared down.
    down_at: Option<Boottime>,
    /// Time of the last grant, by the root's clock.
    granted_at: Option<Boottime>,
    /// The last beat that no grant has answered yet, by the node's clock.
    beat: Option<Boottime>,
    clock: Clock,
    /// Sequence number of the last message.
    seq: u64,
    config_pending: bool,
    follows: BTreeMap<u32, Followed>,
    /// VIPs whose entries have to be sent.
    pending: BTreeSet<u32>,
    /// When they, and pods, are sent.
    haste: Haste,
    /// VIPs that the node's maps hold, and of which the root has no entry yet. A grant would renew the lease on entries
    /// that may be out of date: none is sent meanwhile.
    unanswered: BTreeSet<u32>,
    /// VIPs of unacknowledged messages, by sequence number.
    in_flight: BTreeMap<u64, Vec<u32>>,
    pods: Pods,
}

impl Peer {
    pub(super) fn session(&self) -> Option<Session> {
        self.session
    }

    pub(super) fn down_at(&self) -> Option<Boottime> {
        self.down_at
    }

    pub(super) fn follows(&self) -> Vec<u32> {
        self.follows.keys().copied().collect()
    }

    /// A new stream. The node's entries may be of any version, and its last lease may still run. All of them are
    /// unanswered: [`Peer::changed`] follows for those that the root has. `remote`: the node is on another machine than
    /// the root.
    pub(super) fn open(&mut self, session: Session, follows: &[u32], remote: bool) {
        let installed = |vip: &u32| {
            (
                *vip,
                Followed {
                    installed: true,
                    settle: true,
                    ..Followed::default()
                },
            )
        };
        self.follows = follows.iter().map(installed).collect();
        self.pending.clear();
        self.haste = Haste::Urgent;
        self.unanswered = follows.iter().copied().collect();
        self.in_flight.clear();
        self.session = Some(session);
        self.down_at = None;
        self.beat = None;
        self.clock = if remote {
            Clock::Remote(None)
        } else {
            Clock::Local
        };
        self.seq = 0;
        self.config_pending = true;
        self.pods.open();
    }

    /// The stream has ended. Returns the end of the node's lease.
    pub(super) fn close(&mut self, terms: Terms, now: Boottime) -> Boottime {
        self.session = None;
        let end = self.leased_until(terms).unwrap_or(now).max(now);
        self.down_at = Some(end);
        end
    }

    fn leased_until(&self, terms: Terms) -> Option<Boottime> {
        self.granted_at.map(|sent| terms.usable_until(sent))
    }

    /// The node acknowledged everything up to `seq`.
    pub(super) fn acknowledge(&mut self, seq: u64) -> Acknowledged {
        if seq > self.seq {
            return Acknowledged::default();
        }
        let mut gone = Vec::new();
        let later = self.in_flight.split_off(&(seq + 1));
        let done = std::mem::replace(&mut self.in_flight, later);
        let any = !done.is_empty();
        let vips: Vec<u32> = done.into_values().flatten().collect();
        for vip in &vips {
            let Some(followed) = self.follows.get_mut(vip) else {
                continue;
            };
            if let Some(sent) = followed.sent.take_if(|sent| sent.seq <= seq) {
                let pending = self.pending.contains(vip);
                followed.acknowledged = sent.version;
                followed.older_until = None;
                followed.settle &= pending;
                if sent.gone && !pending {
                    gone.push(*vip);
                }
            }
        }
        for vip in &gone {
            self.follows.remove(vip);
        }
        Acknowledged { any, vips, gone }
    }

    /// Follows a VIP: [`Peer::changed`] sends its entry, also again. False at the limit of VIPs.
    pub(super) fn want(&mut self, vip: u32) -> bool {
        if self.follows.len() >= FOLLOWS_MAX && !self.follows.contains_key(&vip) {
            return false;
        }
        self.follows.entry(vip).or_default();
        true
    }

    pub(super) fn unfollow(&mut self, vip: u32) {
        self.follows.remove(&vip);
        self.pending.remove(&vip);
        self.unanswered.remove(&vip);
    }

    /// The root has an entry of the VIP, or a newer version of it, which has to be sent. Returns the stream to wake. `lingers`: it
    /// may wait for [`LINGER`], unless the node has not answered for the VIP's entry before, or an earlier removal waits for it.
    pub(super) fn changed(&mut self, entry: &Entry, lingers: bool) -> Option<Session> {
        let is_first = self.is_idle();
        let followed = self.follows.get_mut(&entry.vip)?;
        let is_waited_for = followed.settle;
        followed.settle |= entry.settle;
        let is_new = self.unanswered.remove(&entry.vip) || !followed.installed;
        self.pending.insert(entry.vip);
        self.hasten(lingers && !is_new && !is_waited_for, is_first)
    }

    /// Whether neither entries nor pods have to be sent.
    fn is_idle(&self) -> bool {
        self.pending.is_empty() && !self.pods.are_pending()
    }

    /// Something has to be sent; `is_first`: nothing had to be before. Returns the stream to wake.
    fn hasten(&mut self, lingers: bool, is_first: bool) -> Option<Session> {
        if !lingers {
            self.haste = Haste::Urgent;
        } else if is_first {
            self.haste = Haste::Linger;
        } else {
            return None;
        }
        self.session
    }

    /// The time until which the node may use an older version of a VIP's entry than `version`, if it may use one.
    pub(super) fn uses_older(&self, vip: u32, version: u64, terms: Terms) -> Option<Boottime> {
        let followed = self.follows.get(&vip)?;
        if followed.acknowledged >= version || !followed.installed {
            return None;
        }
        if self.pending.contains(&vip) || self.unanswered.contains(&vip) {
            self.leased_until(terms)
        } else {
            followed.older_until
        }
    }

    pub(super) fn beat(&mut self, at: Boottime, now: Boottime) {
        self.beat = Some(at);
        if let Clock::Remote(offset_ns) = &mut self.clock {
            let offset = i128::from(now.0) - i128::from(at.0);
            // The smallest difference seen contains the least network delay.
            *offset_ns = Some(offset_ns.map_or(offset, |smallest| smallest.min(offset)));
        }
    }

    /// Converts a time of the node's clock to the root's.
    pub(super) fn root_time(&self, at: Boottime) -> Boottime {
        let Clock::Remote(Some(offset_ns)) = self.clock else {
            return at;
        };
        let shifted = i128::from(at.0) + offset_ns;
        Boottime(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX))
    }

    /// Records a pod's status and returns it with the root's times. A pod that is gone is deleted.
    pub(super) fn pod_status(&mut self, mut status: PodStatus) -> PodStatus {
        if status.phase() == Phase::Gone {
            self.pods.gone(&status.uid);
        }
        let root_ns = |ns: u64| {
            if ns == 0 {
                0
            } else {
                self.root_time(Boottime(ns)).0
            }
        };
        status.stages = status.stages.map(|stages| Stages {
            received_ns: root_ns(stages.received_ns),
            cni_begin_ns: root_ns(stages.cni_begin_ns),
            cni_end_ns: root_ns(stages.cni_end_ns),
            started_ns: root_ns(stages.started_ns),
            ready_ns: root_ns(stages.ready_ns),
        });
        status
    }

    /// Runs or stops a pod. The end of one may wait for [`LINGER`].
    pub(super) fn run(&mut self, pod: PodSpec) -> Option<Session> {
        let (is_first, lingers) = (self.is_idle(), pod.stop);
        self.pods.run(pod);
        self.hasten(lingers, is_first)
    }

    pub(super) fn sync_pods(&mut self, pods: Vec<PodSpec>) -> Option<Session> {
        self.pods.sync(pods);
        self.hasten(false, false)
    }

    /// The time at which pending entries and pods are sent that are not urgent.
    pub(super) fn lingers_until(&self) -> Option<Boottime> {
        match self.haste {
            // A node with too many unacknowledged messages is sent none until it acknowledges.
            Haste::Until(at) if !self.is_idle() && self.in_flight.len() < IN_FLIGHT_MAX => Some(at),
            _ => None,
        }
    }

    /// Whether the pending entries and pods are to be sent now.
    fn is_due(&mut self, now: Boottime) -> bool {
        if self.is_idle() {
            return false;
        }
        match self.haste {
            Haste::Urgent => true,
            Haste::Linger => {
                self.haste = Haste::Until(now + LINGER);
                false
            }
            Haste::Until(at) => at <= now,
        }
    }

    /// The next message, if there is anything to send and the node acknowledges in time.
    pub(super) fn next(&mut self, root: &RootState<'_>, now: Boottime) -> Option<Down> {
        let anything = self.config_pending
            || (self.beat.is_some() && self.unanswered.is_empty())
            || self.is_due(now);
        if !anything || self.in_flight.len() >= IN_FLIGHT_MAX {
            return None;
        }
        self.seq += 1;
        let config = std::mem::take(&mut self.config_pending).then(|| root.config.clone());
        let (run, run_complete) = self.pods.take();
        let entries = self.take_entries(root);
        // A grant goes out after all changes: it would renew the lease on replaced entries otherwise.
        let beat = if self.pending.is_empty() && self.unanswered.is_empty() {
            self.beat.take()
        } else {
            None
        };
        let grant = beat.map(|beat| {
            self.granted_at = Some(now);
            Grant {
                beat_ns: beat.0,
                lease_ms: root.terms.lease_ms(),
                epoch: root.epoch,
            }
        });
        Some(Down {
            seq: self.seq,
            entries,
            config,
            run,
            grant,
            run_complete,
            epoch: root.epoch,
        })
    }

    /// Takes pending entries up to [`ENTRIES_BYTES_MAX`]; those of divided traffic first, because an agent that has started does not
    /// know yet what its predecessor composed of the others, then those with `settle`, because a removal waits for them.
    fn take_entries(&mut self, root: &RootState<'_>) -> Vec<Entry> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let settles = |vip: &u32| {
            self.follows
                .get(vip)
                .is_some_and(|followed| followed.settle)
        };
        let divides = |vip: &u32| {
            let entry = root.entries.get(vip);
            entry.is_some_and(|entry| !entry.split.is_empty())
        };
        let mut pending: Vec<u32> = self.pending.iter().copied().collect();
        pending.sort_by_cached_key(|vip| (!divides(vip), !settles(vip)));
        self.haste = Haste::Urgent;
        let older_until = self.leased_until(root.terms);
        let mut entries = Vec::new();
        let mut bytes = 0;
        for vip in pending {
            if bytes >= ENTRIES_BYTES_MAX {
                break;
            }
            self.pending.remove(&vip);
            let Some(followed) = self.follows.get_mut(&vip) else {
                continue;
            };
            let Some(mut entry) = root.entries.get(&vip).cloned() else {
                continue;
            };
            entry.settle |= followed.settle;
            followed.older_until = if followed.installed {
                older_until
            } else {
                None
            };
            followed.installed = true;
            followed.sent = Some(Sent {
                seq: self.seq,
                version: entry.version,
                gone: entry.gone,
            });
            bytes += entry.encoded_len();
            entries.push(entry);
        }
        self.in_flight
            .insert(self.seq, entries.iter().map(|entry| entry.vip).collect());
        entries
    }
}
