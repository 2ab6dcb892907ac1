//! The VIPs that a node follows, and those that it no longer does: entries without a connection for a while are dropped, so that
//! neither the apps of long ago nor a scan use up the node's limit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock::Boottime;

/// The state of one followed VIP.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Followed {
    /// The newest version that was received on this stream; 0 if none was.
    pub(super) version: u64,
    /// Time of the last known use; none: before this agent.
    used: Option<Boottime>,
    /// The entry is being dropped: its new connections go to an activator already.
    leaving: bool,
}

/// A VIP that was dropped. Entries of it may still be in flight: they are ignored, and it is not followed again until control has
/// certainly received the drop.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    /// When the drop was sent; none: not yet.
    sent: Option<Boottime>,
    /// A packet to it was a miss since then.
    missed: bool,
}

/// The VIPs that are dropped at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Those without use for so long, ± 20%.
    pub(super) idle: Duration,
    /// At least so many, those used least recently.
    pub(super) excess: usize,
    /// At most so many.
    pub(super) count: usize,
}

/// The end of the drop of a VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropEnd {
    /// The caller removes the entry before the next message is sent.
    Dropped,
    /// There are open connections: the entry is again as it was before.
    Used,
    /// A newer entry was received and applied, which stays.
    Newer,
}

/// The followed VIPs and the dropped ones.
#[derive(Debug, Default)]
pub(super) struct Follows {
    vips: BTreeMap<u32, Followed>,
    dropped: BTreeMap<u32, Dropped>,
}

impl Follows {
    pub(super) fn new(installed: &[u32]) -> Self {
        let vips = installed.iter().map(|vip| (*vip, Followed::default()));
        Self {
            vips: vips.collect(),
            dropped: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.vips.len()
    }

    pub(super) fn contains(&self, vip: u32) -> bool {
        self.vips.contains_key(&vip)
    }

    /// The number of VIPs above the high mark of a node that follows up to `max`: those that were used least recently are dropped
    /// before their time, so that new ones have room.
    pub(super) fn excess(&self, max: usize) -> usize {
        self.vips.len().saturating_sub(max * 7 / 8)
    }

    /// All followed VIPs, for the hello of a new stream. Control then knows that the dropped ones are not followed; returns those
    /// of them that were missed meanwhile.
    pub(super) fn open(&mut self) -> (Vec<u32>, BTreeSet<u32>) {
        for followed in self.vips.values_mut() {
            followed.version = 0;
        }
        let dropped = std::mem::take(&mut self.dropped).into_iter();
        let missed = dropped.filter(|(_, dropped)| dropped.missed);
        let missed = missed.map(|(vip, _)| vip).collect();
        (self.vips.keys().copied().collect(), missed)
    }

    /// Whether an entry that was received is to be applied. Its VIP is followed from now on, unless it does not exist.
    pub(super) fn received(&mut self, vip: u32, version: u64, gone: bool, now: Boottime) -> bool {
        if self.dropped.contains_key(&vip) {
            return false;
        }
        let begin = Followed {
            used: Some(now),
            ..Followed::default()
        };
        let followed = self.vips.entry(vip).or_insert(begin);
        if version < followed.version {
            return false;
        }
        followed.version = version;
        followed.leaving = false;
        if gone {
            self.vips.remove(&vip);
        }
        true
    }

    /// The entry is written again without having been received: a drop that has begun has to begin again.
    pub(super) fn rewritten(&mut self, vip: u32) {
        if let Some(followed) = self.vips.get_mut(&vip) {
            followed.leaving = false;
        }
    }

    /// Connections to the VIP were opened or are open.
    pub(super) fn used(&mut self, vip: u32, now: Boottime) {
        if let Some(followed) = self.vips.get_mut(&vip) {
            followed.used = Some(now);
        }
    }

    /// Whether the VIP was dropped a moment ago: a miss is repeated as soon as it may be followed again.
    pub(super) fn missed_after_drop(&mut self, vip: u32) -> bool {
        let dropped = self.dropped.get_mut(&vip);
        dropped.is_some_and(|dropped| {
            dropped.missed = true;
            true
        })
    }

    /// Begins to drop VIPs without use, and those used least recently. Only those that `may` be dropped; none before all entries were
    /// received on this stream, since each may make another one a target of its connections.
    pub(super) fn begin_drops(
        &mut self,
        now: Boottime,
        limits: Limits,
        may: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let Limits {
            idle,
            excess,
            count,
        } = limits;
        if self.vips.values().any(|followed| followed.version == 0) {
            return Vec::new();
        }
        let mut least: Vec<(Boottime, u32)> = Vec::new();
        for (vip, followed) in &mut self.vips {
            let used = *followed.used.get_or_insert(now);
            let is_idle = now.since(used) >= jittered(idle, *vip);
            if !followed.leaving && (is_idle || excess > 0) && may(*vip) {
                // Idle ones first.
                least.push((if is_idle { Boottime(0) } else { used }, *vip));
            }
        }
        let idle = least.iter().filter(|(used, _)| used.0 == 0).count();
        least.sort_unstable();
        least.truncate(count.min(idle.max(excess)));
        let vips: Vec<u32> = least.into_iter().map(|(_, vip)| vip).collect();
        for vip in &vips {
            if let Some(followed) = self.vips.get_mut(vip) {
                followed.leaving = true;
            }
        }
        vips
    }

    /// Ends the drop of a VIP, unless it is `used`.
    pub(super) fn end_drop(&mut self, vip: u32, used: bool, now: Boottime) -> DropEnd {
        let Some(followed) = self.vips.get_mut(&vip).filter(|vip| vip.leaving) else {
            return DropEnd::Newer;
        };
        followed.leaving = false;
        if used {
            followed.used = Some(now);
            return DropEnd::Used;
        }
        self.vips.remove(&vip);
        let dropped = Dropped {
            sent: None,
            missed: false,
        };
        self.dropped.insert(vip, dropped);
        DropEnd::Dropped
    }

    /// Whether [`Follows::send_drops`] has VIPs.
    pub(super) fn has_drops(&self) -> bool {
        self.dropped.values().any(|dropped| dropped.sent.is_none())
    }

    /// The dropped VIPs to report to control.
    pub(super) fn send_drops(&mut self, now: Boottime) -> Vec<u32> {
        let mut vips = Vec::new();
        for (vip, dropped) in &mut self.dropped {
            if dropped.sent.is_none() {
                dropped.sent = Some(now);
                vips.push(*vip);
            }
        }
        vips
    }

    /// Control has answered a beat that was sent at `beat`: it has received the drops that were sent before. Returns those that
    /// were missed meanwhile.
    pub(super) fn answered(&mut self, beat: Boottime) -> Vec<u32> {
        let mut missed = Vec::new();
        self.dropped.retain(|vip, dropped| {
            let received = dropped.sent.is_some_and(|sent| sent < beat);
            if received && dropped.missed {
                missed.push(*vip);
            }
            !received
        });
        missed
    }
}

/// `idle` ± 20%, different for each VIP, so that entries of one time are not dropped at one time.
fn jittered(idle: Duration, vip: u32) -> Duration {
    let hash = vip.wrapping_mul(0x9E37_79B1) >> 24;
    idle * 4 / 5 + idle * 2 / 5 * hash / 256
}
