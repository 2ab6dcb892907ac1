//! Lists of the cluster: at the start of control, and when the watch of the store could not be resumed.

use std::collections::HashSet;

use dormouse_cluster::Key;

use super::Apps;
use super::turn::Turn;
use crate::plan;

/// A list in progress.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The VIPs of the apps in it.
    pub(super) seen: HashSet<u32>,
}

impl Apps {
    /// A list is complete: apps that were not in it were deleted. After the first one, all apps with records are planned.
    pub(super) fn listed(&mut self, revision: u64, turn: &mut Turn) {
        self.revision = self.revision.max(revision);
        let seen = self.listing.take().unwrap_or_default().seen;
        let awake = self.index.iter();
        let awake = awake
            .filter(|(_, vip)| !seen.contains(*vip))
            .map(|(key, _)| key.clone());
        let asleep = self.sleep.vips().filter(|vip| !seen.contains(vip));
        let asleep = asleep.filter_map(|vip| self.sleep.key(vip));
        let deleted: Vec<Key> = awake.chain(asleep).collect();
        for key in deleted {
            self.port_moved(self.port_of(&key), None, turn);
            if let Some(vip) = self.app_gone(&key, revision, turn) {
                self.plan(vip, turn);
            }
        }
        if !self.is_listed {
            self.is_listed = true;
            self.resume(turn);
        }
    }

    /// Takes over the apps with records after the first list.
    fn resume(&mut self, turn: &mut Turn) {
        let vips: Vec<u32> = self.records.keys().copied().collect();
        for vip in vips {
            if let Some(record) = self.records.get_mut(&vip) {
                turn.actions.extend(plan::resume(record, turn.now));
            }
            self.plan(vip, turn);
        }
    }
}
