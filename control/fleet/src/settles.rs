//! The changes of which control waits until no node uses an older version: one per VIP, without a task or a timer of its own.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::oneshot;

use crate::clock::Boottime;
use crate::root::{Event, Root, Settling};

/// The changes that are waited for.
#[derive(Debug, Default)]
pub(crate) struct Settles {
    by_vip: BTreeMap<u32, Waiting>,
    /// The VIPs whose nodes have acknowledged nothing, by the end of their leases.
    due: BTreeSet<(Boottime, u32)>,
}

/// What is waited for at one VIP.
#[derive(Debug, Default)]
struct Waiting {
    /// The version whose settling is an event.
    event: Option<u64>,
    /// Callers who wait for a version.
    callers: Vec<(u64, oneshot::Sender<()>)>,
    until: Option<Boottime>,
}

impl Settles {
    /// Waits for a version of a VIP's entry, and no longer for an earlier one. Returns the event if it has settled already.
    pub(crate) fn add(
        &mut self,
        root: &Root,
        (vip, version): (u32, u64),
        now: Boottime,
    ) -> Option<Event> {
        let waiting = self.by_vip.entry(vip).or_default();
        waiting.event = waiting.event.max(Some(version));
        self.check(root, vip, now)
    }

    /// Waits for a version of a VIP's entry for one caller, beside others. [`Settles::check`] follows.
    pub(crate) fn call(&mut self, vip: u32, version: u64) -> oneshot::Receiver<()> {
        let (caller, settled) = oneshot::channel();
        let waiting = self.by_vip.entry(vip).or_default();
        waiting.callers.push((version, caller));
        settled
    }

    /// A VIP's entry was acknowledged, changed or dropped: informs the callers whose change has settled, and returns the event if that
    /// has.
    pub(crate) fn check(&mut self, root: &Root, vip: u32, now: Boottime) -> Option<Event> {
        let waiting = self.by_vip.get_mut(&vip)?;
        if let Some(at) = waiting.until.take() {
            self.due.remove(&(at, vip));
        }
        let mut until: Option<Boottime> = None;
        let mut settled = |version| match root.settling(vip, version, now) {
            Settling::Settled => true,
            Settling::Wait(at) => {
                until = until.into_iter().chain(at).min();
                false
            }
        };
        let event = waiting.event.take_if(|version| settled(*version));
        let callers = std::mem::take(&mut waiting.callers).into_iter();
        for (version, caller) in callers.filter(|(_, caller)| !caller.is_closed()) {
            if settled(version) {
                // The caller may have given up.
                let _ = caller.send(());
            } else {
                waiting.callers.push((version, caller));
            }
        }
        waiting.until = until;
        self.due.extend(until.map(|at| (at, vip)));
        if waiting.event.is_none() && waiting.callers.is_empty() {
            self.by_vip.remove(&vip);
        }
        event.map(|version| Event::Settled { vip, version })
    }

    /// As [`Settles::check`], for all VIPs.
    pub(crate) fn check_all(&mut self, root: &Root, now: Boottime) -> Vec<Event> {
        let vips: Vec<u32> = self.by_vip.keys().copied().collect();
        let settled = vips
            .into_iter()
            .filter_map(|vip| self.check(root, vip, now));
        settled.collect()
    }

    /// The end of the first lease that a change waits for.
    pub(crate) fn due_at(&self) -> Option<Boottime> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A change that has settled because leases have ended, if there is one.
    pub(crate) fn expire(&mut self, root: &Root, now: Boottime) -> Option<Event> {
        while let Some((at, vip)) = self.due.first().copied()
            && at <= now
        {
            let settled = self.check(root, vip, now);
            if settled.is_some() {
                return settled;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
