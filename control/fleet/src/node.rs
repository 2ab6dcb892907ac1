//! The node's half of the stream, pure: the VIPs that it follows, the messages to send, and the end of its lease.
//!
//! The caller applies each [`Step`] in order: entries, a grace period if required, the lease, then [`Node::applied`]. The
//! lease comes after the grace period, so that no program that has read a replaced entry finds the lease renewed. Just before the
//! lease, [`Node::use_stale`] ends the use of the last entries.

mod epoch;
mod follows;
mod misses;
mod splits;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use crate::clock::Boottime;
use crate::proto::pod_status::Phase;
use crate::proto::{Beat, Count, Down, Entry, Grant, Hello, NodeStatus, PodStatus, Up, Woke};

pub use epoch::Epoch;
pub use follows::DropEnd;
use follows::{Follows, Limits};
use misses::Misses;
pub use splits::BackendLoad;
use splits::Splits;
pub use step::{Step, StreamError};

/// Time for which VIPs to follow are collected before they are sent.
pub const WANT_BATCH: Duration = Duration::from_millis(10);
/// Limit of the VIPs to follow in one message.
pub const WANT_PER_MESSAGE_MAX: usize = 1_024;
/// Limit of the VIPs that a node requests or follows; packets to further ones are forwarded to the activator.
pub const FOLLOWS_MAX: usize = crate::root::FOLLOWS_MAX;
/// Time without a connection after which the entry of a VIP is dropped, ± 20%.
pub const IDLE: Duration = Duration::from_mins(10);
/// Interval at which idle entries are looked for; in a node that follows too many VIPs each call of [`Node::are_drops_due`] is due.
const DROPS_EVERY: Duration = Duration::from_secs(30);
/// Interval of beats before the first grant sets it.
const BEAT_FIRST: Duration = Duration::from_secs(1);
/// The epoch of a message without a grant from a root that sends epochs in grants only.
const EPOCH_UNKNOWN: u64 = 0;
/// A stream without a grant for this long is treated as broken: TCP alone would take an hour to detect it.
const SILENCE_MAX: Duration = Duration::from_secs(25);

/// A node that follows VIPs.
#[derive(Debug)]
pub struct Node {
    name: String,
    boot_id: String,
    version: String,
    status: NodeStatus,
    /// The newest root that was followed.
    epoch: Epoch,
    beat_period: Duration,
    follows: Follows,
    /// Limit of the VIPs that are requested or followed.
    follows_max: usize,
    /// When entries to drop were looked for.
    drops_at: Boottime,
    misses: Misses,
    splits: Splits,
    /// VIPs to request.
    want: BTreeSet<u32>,
    want_since: Option<Boottime>,
    /// VIPs requested, whose entries have not been received.
    requested: BTreeSet<u32>,
    /// First packets to report, by VIP, port and protocol.
    woke: BTreeMap<(u32, u32, u32), Woke>,
    pods: BTreeMap<String, PodStatus>,
    pods_changed: BTreeSet<String>,
    counts: BTreeMap<u32, Count>,
    stream: Option<Stream>,
}

/// The state of one stream.
#[derive(Debug)]
struct Stream {
    opened: Boottime,
    /// Time of the last grant, or of the opening.
    granted_at: Boottime,
    beat_due: Boottime,
    /// Sequence number of the last message received.
    received: u64,
    /// Sequence number of the last message in force.
    applied: u64,
    /// The value of `applied` that was sent last.
    applied_sent: u64,
}

impl Node {
    /// A node whose maps already hold entries of the VIPs `installed`.
    pub fn new(name: String, boot_id: String, version: String, installed: &[u32]) -> Self {
        Self {
            name,
            boot_id,
            version,
            status: NodeStatus::default(),
            epoch: Epoch::default(),
            beat_period: BEAT_FIRST,
            follows: Follows::new(installed),
            follows_max: FOLLOWS_MAX,
            drops_at: Boottime(0),
            misses: Misses::new(),
            splits: Splits::default(),
            want: BTreeSet::new(),
            want_since: None,
            requested: BTreeSet::new(),
            woke: BTreeMap::new(),
            pods: BTreeMap::new(),
            pods_changed: BTreeSet::new(),
            counts: BTreeMap::new(),
            stream: None,
        }
    }

    /// Sets a lower limit of the VIPs that are requested or followed than [`FOLLOWS_MAX`].
    pub fn limit_follows(&mut self, max: usize) {
        self.follows_max = max;
    }

    /// Sets the description that is sent when a stream opens.
    pub fn describe(&mut self, status: NodeStatus) {
        self.status = status;
    }

    /// An earlier agent of this node has followed a root with this epoch.
    pub fn follow_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// The newest epoch of a root that was followed.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Opens a stream and returns its first message.
    pub fn open(&mut self, now: Boottime) -> Up {
        let period = self.beat_period;
        self.stream = Some(Stream {
            opened: now,
            granted_at: now,
            beat_due: now + period,
            received: 0,
            applied: 0,
            applied_sent: 0,
        });
        let (follows, mut missed) = self.follows.open();
        self.want.append(&mut missed);
        self.want.append(&mut self.requested);
        self.want_since = (!self.want.is_empty()).then_some(now);
        self.pods_changed.clear();
        let pods = self.pods.values().cloned().collect();
        self.pods.retain(|_, pod| pod.phase() != Phase::Gone);
        let hello = Hello {
            node: self.name.clone(),
            boot_id: self.boot_id.clone(),
            follows,
            status: Some(self.status.clone()),
            version: self.version.clone(),
        };
        let beat = Some(Beat { at_ns: now.0 });
        Up {
            hello: Some(hello),
            beat,
            pods,
            ..Up::default()
        }
    }

    /// The stream is closed. What the node follows and has to report stays; the lease runs on until it expires.
    pub fn close(&mut self) {
        self.stream = None;
    }

    /// Receives a message of the open stream.
    pub fn receive(&mut self, down: Down, now: Boottime) -> Result<Step, StreamError> {
        let Some(stream) = &mut self.stream else {
            return Ok(Step::default());
        };
        let expected = stream.received + 1;
        if down.seq != expected {
            return Err(StreamError::Gap {
                expected,
                got: down.seq,
            });
        }
        let granted = down.grant.as_ref().map_or(0, |grant| grant.epoch);
        let epoch = down.epoch.max(granted);
        if let Some(config) = down
            .config
            .as_ref()
            .filter(|config| !config.cluster.is_empty())
        {
            self.epoch.enter(&config.cluster);
        }
        if epoch != EPOCH_UNKNOWN {
            self.epoch.follow(epoch)?;
        }
        stream.received = down.seq;
        let entries = self.newer(down.entries, now);
        let grace = entries.iter().any(|entry| entry.settle);
        let entries = self.composed(entries, now);
        let lease_until = down.grant.and_then(|grant| self.granted(grant, now));
        Ok(Step {
            seq: down.seq,
            config: down.config,
            grace,
            entries,
            lease_until,
            run: down.run,
            run_complete: down.run_complete,
        })
    }

    /// The entries to write to the maps instead of those that were received. Requests those of new targets.
    fn composed(&mut self, entries: Vec<Entry>, now: Boottime) -> Vec<Entry> {
        let composed = self.splits.compose(entries);
        for entry in &composed.entries {
            self.follows.rewritten(entry.vip);
        }
        for vip in composed.unknown {
            if !self.follows.missed_after_drop(vip) {
                self.want(vip, now);
            }
        }
        composed.entries
    }

    /// The last entries are used without a lease from now on, or are no longer, as an activator answers or a lease is about to be in
    /// force. Returns the entries to write: while no activator wakes the targets of a split that do not serve, the others have its
    /// connections.
    pub fn use_stale(&mut self, stale: bool) -> Vec<Entry> {
        let entries = self.splits.use_stale(stale);
        for entry in &entries {
            self.follows.rewritten(entry.vip);
        }
        entries
    }

    /// A pod has ended while control is away: entries that are composed meanwhile are without it.
    pub fn withdraw(&mut self, pod: Ipv6Addr) {
        self.splits.withdraw(pod);
    }

    /// The end of the lease that a grant gives, counted from the sending of its beat. `None` if the beat was not sent on
    /// this stream.
    fn granted(&mut self, grant: Grant, now: Boottime) -> Option<Boottime> {
        let stream = self.stream.as_mut()?;
        let beat = Boottime(grant.beat_ns);
        if beat < stream.opened || beat > now {
            return None;
        }
        let lease = Duration::from_millis(grant.lease_ms.into());
        self.beat_period = (lease / 3).max(Duration::from_millis(10));
        stream.granted_at = now;
        stream.beat_due = stream.beat_due.min(beat + self.beat_period).max(now);
        for vip in self.follows.answered(beat) {
            self.want(vip, now);
        }
        Some(beat + lease)
    }

    /// The entries that are not older than those received before on this stream. Their VIPs are followed from now on,
    /// except those that do not exist.
    fn newer(&mut self, mut entries: Vec<Entry>, now: Boottime) -> Vec<Entry> {
        entries.retain(|entry| {
            self.requested.remove(&entry.vip);
            self.want.remove(&entry.vip);
            let (vip, version) = (entry.vip, entry.version);
            self.follows.received(vip, version, entry.gone, now)
        });
        entries
    }

    /// Everything up to the message `seq` is in force in the kernel.
    pub fn applied(&mut self, seq: u64) {
        if let Some(stream) = &mut self.stream {
            stream.applied = stream.applied.max(seq);
        }
    }

    /// The kernel reported a packet to a VIP without an entry. False if the node does not follow it, because of the limits: a
    /// later packet has to be reported again.
    pub fn missed(&mut self, vip: u32, now: Boottime) -> bool {
        let known = self.follows.contains(vip)
            || self.follows.missed_after_drop(vip)
            || self.want.contains(&vip)
            || self.requested.contains(&vip);
        if known {
            return true;
        }
        let room = self.follows.len() + self.want.len() + self.requested.len() < self.follows_max;
        let admitted = room && self.misses.admit(vip, now);
        if admitted {
            self.want(vip, now);
        }
        admitted
    }

    fn want(&mut self, vip: u32, now: Boottime) {
        self.want.insert(vip);
        self.want_since.get_or_insert(now);
    }

    /// The kernel reported the first packet to a VIP that is asleep or that this node does not follow yet. False as for
    /// [`Node::missed`].
    pub fn woke(&mut self, woke: Woke, now: Boottime) -> bool {
        let follows = self.missed(woke.vip, now);
        if follows && self.woke.len() < FOLLOWS_MAX {
            let target = (woke.vip, woke.port, woke.protocol);
            self.woke.entry(target).or_insert(woke);
        }
        follows
    }

    /// Whether to call [`Node::begin_drops`]; to be asked each second. A node that follows too many VIPs drops as fast as it admits
    /// new ones.
    pub fn are_drops_due(&mut self, now: Boottime) -> bool {
        let due =
            self.follows.excess(self.follows_max) > 0 || now.since(self.drops_at) >= DROPS_EVERY;
        if due {
            self.drops_at = now;
        }
        due
    }

    /// Begins to drop up to `limit` VIPs without use for `idle`. The caller sends their new connections to an activator, waits for a
    /// grace period and calls [`Node::end_drop`] for each.
    pub fn begin_drops(&mut self, idle: Duration, limit: usize, now: Boottime) -> Vec<u32> {
        let splits = &self.splits;
        let excess = self.follows.excess(self.follows_max);
        let limits = Limits {
            idle,
            excess,
            count: limit,
        };
        self.follows
            .begin_drops(now, limits, |vip| !splits.is_target(vip))
    }

    /// Ends the drop of a VIP; `used`: it has open connections.
    pub fn end_drop(&mut self, vip: u32, used: bool, now: Boottime) -> DropEnd {
        let end = self.follows.end_drop(vip, used, now);
        if end == DropEnd::Dropped {
            self.splits.forget(vip);
        }
        end
    }

    /// Queues a pod's new status.
    pub fn pod(&mut self, status: PodStatus) {
        self.pods_changed.insert(status.uid.clone());
        self.pods.insert(status.uid.clone(), status);
    }

    /// Adds the counters of one interval. Those of a VIP with a traffic split are its targets'; `loads` gives the connections of a
    /// VIP's backends on this node.
    pub fn count_interval(
        &mut self,
        counts: Vec<Count>,
        loads: impl Fn(u32) -> Vec<BackendLoad>,
        now: Boottime,
    ) {
        let mut sums: BTreeMap<u32, Count> = BTreeMap::new();
        for count in counts {
            self.follows.used(count.vip, now);
            for part in self.splits.allot(&count, &loads) {
                let sum = sums.entry(part.vip).or_default();
                *sum = Count {
                    vip: part.vip,
                    // All parts are of the same time.
                    interval_ns: sum.interval_ns.max(part.interval_ns),
                    connections: sum.connections + part.connections,
                    connection_ns: sum.connection_ns + part.connection_ns,
                    open: sum.open + part.open,
                };
            }
        }
        for count in sums.into_values() {
            self.count(count, now);
        }
    }

    /// Adds counters of the data plane to those not sent yet.
    pub fn count(&mut self, count: Count, now: Boottime) {
        self.follows.used(count.vip, now);
        let sum = self.counts.entry(count.vip).or_insert(Count {
            vip: count.vip,
            ..Count::default()
        });
        sum.interval_ns += count.interval_ns;
        sum.connections += count.connections;
        sum.connection_ns += count.connection_ns;
        sum.open = count.open;
    }

    /// The node lease that control grants.
    pub fn lease(&self) -> Duration {
        self.beat_period * 3
    }

    /// Whether no grant has been received for too long: close the stream and connect again.
    pub fn is_silent(&self, now: Boottime) -> bool {
        let silence = SILENCE_MAX
            .min(self.beat_period * 5 / 2)
            .max(Duration::from_secs(2));
        self.stream
            .as_ref()
            .is_some_and(|stream| now.since(stream.granted_at) > silence)
    }

    /// The time at which [`Node::next`] has a message; `None` without a stream.
    pub fn due(&self) -> Option<Boottime> {
        let stream = self.stream.as_ref()?;
        let immediately = stream.applied > stream.applied_sent
            || !self.woke.is_empty()
            || !self.pods_changed.is_empty()
            || !self.counts.is_empty()
            || self.follows.has_drops();
        if immediately {
            return Some(Boottime(0));
        }
        let want_due = self.want_since.map(|since| since + WANT_BATCH);
        Some(want_due.map_or(stream.beat_due, |due| due.min(stream.beat_due)))
    }

    /// The next message, with everything there is to send, if anything is due.
    pub fn next(&mut self, now: Boottime) -> Option<Up> {
        if self.due()? > now {
            return None;
        }
        let stream = self.stream.as_mut()?;
        let beat = (stream.beat_due <= now).then_some(Beat { at_ns: now.0 });
        if beat.is_some() {
            stream.beat_due = now + self.beat_period;
        }
        stream.applied_sent = stream.applied;
        let applied = stream.applied;
        let mut want = std::mem::take(&mut self.want);
        if want.len() > WANT_PER_MESSAGE_MAX
            && let Some(first_remaining) = want.iter().nth(WANT_PER_MESSAGE_MAX).copied()
        {
            self.want = want.split_off(&first_remaining);
        }
        self.want_since = (!self.want.is_empty()).then_some(now);
        self.requested.extend(&want);
        let woke = std::mem::take(&mut self.woke);
        Some(Up {
            applied,
            beat,
            want: want.into_iter().collect(),
            drop: self.follows.send_drops(now),
            woke: woke.into_values().collect(),
            pods: self.take_pods(),
            counts: std::mem::take(&mut self.counts).into_values().collect(),
            ..Up::default()
        })
    }

    /// The changed pods. A pod that is gone is sent once and then deleted.
    fn take_pods(&mut self) -> Vec<PodStatus> {
        let changed = std::mem::take(&mut self.pods_changed);
        let pods = changed
            .iter()
            .filter_map(|uid| self.pods.get(uid).cloned())
            .collect();
        for uid in changed {
            if self
                .pods
                .get(&uid)
                .is_some_and(|pod| pod.phase() == Phase::Gone)
            {
                self.pods.remove(&uid);
            }
        }
        pods
    }

    /// The number of followed VIPs.
    pub fn follows(&self) -> usize {
        self.follows.len()
    }
}
