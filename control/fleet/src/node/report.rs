//! Messages to control: pods, counters, first packets and the VIPs to follow. Pure.

use std::collections::BTreeMap;

use super::{BackendLoad, Node, WANT_BATCH, WANT_PER_MESSAGE_MAX};
use crate::clock::Boottime;
use crate::proto::pod_status::Phase;
use crate::proto::{Beat, Count, PodStatus, Up};

impl Node {
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
}
