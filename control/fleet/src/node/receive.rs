//! Messages of control: entries, which are composed where connections are divided, and the lease. Pure.

use std::net::Ipv6Addr;
use std::time::Duration;

use super::{Node, Step, StreamError};
use crate::clock::Boottime;
use crate::proto::{Down, Entry, Grant};

/// The epoch of a message without a grant from a root that sends epochs in grants only.
const EPOCH_UNKNOWN: u64 = 0;

impl Node {
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
}
