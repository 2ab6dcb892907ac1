//! A node's half of the stream, pure: what it follows, what it has to say, and how long its lease runs.
//!
//! The shell applies each [`Step`] in order: entries, a grace period if asked for, the lease, then [`Node::applied`]. The
//! lease comes after the grace period: a program that has read a replaced entry may not find it renewed.

mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock::Boottime;
use crate::proto::pod_status::Phase;
use crate::proto::{Beat, Count, Down, Entry, Grant, Hello, NodeStatus, PodStatus, Up, Woke};

pub use step::{Step, StreamError};

/// How long wishes to follow are gathered before they are sent.
pub const WANT_BATCH: Duration = Duration::from_millis(10);
/// VIPs in one message that a node wants to follow.
pub const WANT_PER_MESSAGE_MAX: usize = 1_024;
/// VIPs a node asks for or follows; further misses stay on the activator's way.
pub const FOLLOWS_MAX: usize = crate::root::FOLLOWS_MAX;
/// Between beats until the first grant tells the lease.
const BEAT_FIRST: Duration = Duration::from_secs(1);
/// A stream without a grant for this long is taken for dead: TCP alone would not notice for an hour.
const SILENCE_MAX: Duration = Duration::from_secs(25);

/// A node that follows VIPs.
#[derive(Debug)]
pub struct Node {
    name: String,
    boot_id: String,
    version: String,
    status: NodeStatus,
    epoch: u64,
    beat_period: Duration,
    /// The newest version of each VIP that came on this stream; 0 for what was held before it.
    follows: BTreeMap<u32, u64>,
    want: BTreeSet<u32>,
    want_since: Option<Boottime>,
    asked: BTreeSet<u32>,
    woke: BTreeMap<u32, Boottime>,
    pods: BTreeMap<String, PodStatus>,
    pods_changed: BTreeSet<String>,
    counts: BTreeMap<u32, Count>,
    stream: Option<Stream>,
}

/// What belongs to one stream only.
#[derive(Debug)]
struct Stream {
    opened: Boottime,
    heard: Boottime,
    beat_due: Boottime,
    received: u64,
    applied: u64,
    applied_told: u64,
}

impl Node {
    /// A node whose kernel maps hold these VIPs already.
    pub fn new(name: String, boot_id: String, version: String, held: &[u32]) -> Self {
        Self {
            name,
            boot_id,
            version,
            status: NodeStatus::default(),
            epoch: 0,
            beat_period: BEAT_FIRST,
            follows: held.iter().map(|vip| (*vip, 0)).collect(),
            want: BTreeSet::new(),
            want_since: None,
            asked: BTreeSet::new(),
            woke: BTreeMap::new(),
            pods: BTreeMap::new(),
            pods_changed: BTreeSet::new(),
            counts: BTreeMap::new(),
            stream: None,
        }
    }

    /// What the node says of itself when a stream opens.
    pub fn describe(&mut self, status: NodeStatus) {
        self.status = status;
    }

    /// Opens a stream: its first message.
    pub fn open(&mut self, now: Boottime) -> Up {
        let period = self.beat_period;
        self.stream = Some(Stream {
            opened: now,
            heard: now,
            beat_due: now + period,
            received: 0,
            applied: 0,
            applied_told: 0,
        });
        for version in self.follows.values_mut() {
            *version = 0;
        }
        self.want.append(&mut self.asked);
        self.want_since = (!self.want.is_empty()).then_some(now);
        self.pods_changed.clear();
        let pods = self.pods.values().cloned().collect();
        self.pods.retain(|_, pod| pod.phase() != Phase::Gone);
        let hello = Hello {
            node: self.name.clone(),
            boot_id: self.boot_id.clone(),
            follows: self.follows.keys().copied().collect(),
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

    /// The stream is gone. Nothing is forgotten but the stream; the lease runs out by itself.
    pub fn close(&mut self) {
        self.stream = None;
    }

    /// Takes in a message of the open stream.
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
        if let Some(grant) = &down.grant
            && grant.epoch < self.epoch
        {
            return Err(StreamError::EpochOld {
                known: self.epoch,
                got: grant.epoch,
            });
        }
        stream.received = down.seq;
        let lease_until = down.grant.and_then(|grant| self.granted(grant, now));
        let entries = self.newer(down.entries);
        Ok(Step {
            seq: down.seq,
            config: down.config,
            grace: entries.iter().any(|entry| entry.settle),
            entries,
            lease_until,
            run: down.run,
            run_complete: down.run_complete,
        })
    }

    /// The lease of a grant that answers a beat of this stream, counted from that beat's sending.
    fn granted(&mut self, grant: Grant, now: Boottime) -> Option<Boottime> {
        let stream = self.stream.as_mut()?;
        let beat = Boottime(grant.beat_ns);
        if beat < stream.opened || beat > now {
            return None;
        }
        let lease = Duration::from_millis(grant.lease_ms.into());
        self.epoch = grant.epoch;
        self.beat_period = (lease / 3).max(Duration::from_millis(10));
        stream.heard = now;
        stream.beat_due = stream.beat_due.min(beat + self.beat_period).max(now);
        Some(beat + lease)
    }

    /// The entries that are no older than what came before on this stream; they are followed from now on.
    fn newer(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        let mut newer = Vec::with_capacity(entries.len());
        for entry in entries {
            self.asked.remove(&entry.vip);
            self.want.remove(&entry.vip);
            let version = self.follows.entry(entry.vip).or_default();
            if entry.version >= *version {
                *version = entry.version;
                newer.push(entry);
            }
        }
        newer
    }

    /// Everything up to this message is in force in the kernel.
    pub fn applied(&mut self, seq: u64) {
        if let Some(stream) = &mut self.stream {
            stream.applied = stream.applied.max(seq);
        }
    }

    /// The kernel met a VIP without an entry.
    pub fn missed(&mut self, vip: u32, now: Boottime) {
        let room = self.follows.len() + self.want.len() + self.asked.len() < FOLLOWS_MAX;
        if room && !self.follows.contains_key(&vip) && !self.asked.contains(&vip) {
            self.want.insert(vip);
            self.want_since.get_or_insert(now);
        }
    }

    /// The kernel saw the first packet to a VIP that sleeps, or that this node does not follow yet.
    pub fn woke(&mut self, vip: u32, at: Boottime, now: Boottime) {
        self.missed(vip, now);
        if self.woke.len() < FOLLOWS_MAX {
            self.woke.entry(vip).or_insert(at);
        }
    }

    /// A pod's newest state.
    pub fn pod(&mut self, status: PodStatus) {
        self.pods_changed.insert(status.uid.clone());
        self.pods.insert(status.uid.clone(), status);
    }

    /// What the data plane counted since it was asked before; sums up while there is no stream.
    pub fn count(&mut self, count: Count) {
        let sum = self.counts.entry(count.vip).or_insert(Count {
            vip: count.vip,
            ..Count::default()
        });
        sum.interval_ns += count.interval_ns;
        sum.connections += count.connections;
        sum.connection_ns += count.connection_ns;
        sum.open = count.open;
    }

    /// Whether the stream has been silent for too long.
    pub fn is_silent(&self, now: Boottime) -> bool {
        let silence = SILENCE_MAX
            .min(self.beat_period * 5 / 2)
            .max(Duration::from_secs(2));
        self.stream
            .as_ref()
            .is_some_and(|stream| now.since(stream.heard) > silence)
    }

    /// When [`Node::next`] has something to say; `None` without a stream.
    pub fn due(&self) -> Option<Boottime> {
        let stream = self.stream.as_ref()?;
        let at_once = stream.applied > stream.applied_told
            || !self.woke.is_empty()
            || !self.pods_changed.is_empty()
            || !self.counts.is_empty();
        if at_once {
            return Some(Boottime(0));
        }
        let want_due = self.want_since.map(|since| since + WANT_BATCH);
        Some(want_due.map_or(stream.beat_due, |due| due.min(stream.beat_due)))
    }

    /// One message with all there is to say, if anything is due.
    pub fn next(&mut self, now: Boottime) -> Option<Up> {
        if self.due()? > now {
            return None;
        }
        let stream = self.stream.as_mut()?;
        let beat = (stream.beat_due <= now).then_some(Beat { at_ns: now.0 });
        if beat.is_some() {
            stream.beat_due = now + self.beat_period;
        }
        stream.applied_told = stream.applied;
        let applied = stream.applied;
        let mut want = std::mem::take(&mut self.want);
        if want.len() > WANT_PER_MESSAGE_MAX
            && let Some(first_left) = want.iter().nth(WANT_PER_MESSAGE_MAX).copied()
        {
            self.want = want.split_off(&first_left);
        }
        self.want_since = (!self.want.is_empty()).then_some(now);
        self.asked.extend(&want);
        let woke = std::mem::take(&mut self.woke);
        Some(Up {
            applied,
            beat,
            want: want.into_iter().collect(),
            woke: woke
                .into_iter()
                .map(|(vip, at)| Woke { vip, at_ns: at.0 })
                .collect(),
            pods: self.take_pods(),
            counts: std::mem::take(&mut self.counts).into_values().collect(),
            ..Up::default()
        })
    }

    /// The pods that changed; the last word on a pod is said once a stream.
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

    /// VIPs whose entries the kernel holds or will hold.
    pub fn follows(&self) -> usize {
        self.follows.len()
    }
}
