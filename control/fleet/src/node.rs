//! The node's half of the stream, pure: the VIPs that it follows, the messages to send, and the end of its lease.
//!
//! The caller applies each [`Step`] in order: entries, a grace period if required, the lease, then [`Node::applied`]. The
//! lease comes after the grace period, so that no program that has read a replaced entry finds the lease renewed.

mod epoch;
mod follows;
mod misses;
mod receive;
mod report;
mod splits;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock::Boottime;
use crate::proto::pod_status::Phase;
use crate::proto::{Beat, Count, Hello, NodeStatus, PodStatus, Up, Woke};

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

    /// The number of followed VIPs.
    pub fn follows(&self) -> usize {
        self.follows.len()
    }
}
