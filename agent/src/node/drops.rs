//! Entries without connections for a while: their new connections are sent to an activator, and after a grace period, in which the
//! last connection to a pod may have begun, they are removed and control is informed.

use dormouse_agent_datapath::Mode;
use dormouse_fleet::Boottime;
use dormouse_fleet::node::{DropEnd, IDLE};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::Node;

/// Limit of the entries that are dropped at once, each second: more than a node begins to follow in it.
const DROPS_MAX: usize = 1_024;

/// Entries whose grace period runs.
pub struct Drops {
    wait: JoinHandle<()>,
    vips: Vec<u32>,
    /// Those of them that were in mode serve.
    serving: Vec<u32>,
}

/// Resolves when the grace period is over. Cancel safe.
pub(super) async fn graced(drops: &mut Option<Drops>) {
    match drops {
        // The thread cannot fail; it is only cut off when the agent stops.
        Some(drops) => drop((&mut drops.wait).await),
        None => std::future::pending().await,
    }
}

impl Node {
    /// Begins to drop entries, if that is due. Without control none is dropped: they could not be received again.
    pub(super) fn begin_drops(&mut self) {
        let now = Boottime::now();
        let busy = self.drops.is_some() || !self.state.is_connected();
        if busy || !self.fleet.are_drops_due(now) {
            return;
        }
        let vips = self.fleet.begin_drops(IDLE, DROPS_MAX, now);
        if vips.is_empty() {
            return;
        }
        let serving = self.datapath.apps.flip(&vips, Mode::Proxy);
        let grace = self.datapath.grace_period();
        self.drops = Some(Drops {
            wait: tokio::task::spawn_blocking(move || grace.wait()),
            vips,
            serving,
        });
    }

    /// The grace period is over: removes the entries that have no connections.
    pub(super) fn end_drops(&mut self) {
        let Some(drops) = self.drops.take() else {
            return;
        };
        let now = Boottime::now();
        let mut dropped = 0;
        for vip in drops.vips {
            let used = self.datapath.apps.is_used(vip);
            match self.fleet.end_drop(vip, used, now) {
                DropEnd::Newer => {}
                DropEnd::Used => {
                    if drops.serving.contains(&vip) {
                        self.datapath.apps.flip(&[vip], Mode::Serve);
                    }
                }
                DropEnd::Dropped => {
                    dropped += 1;
                    if let Err(error) = self.datapath.apps.forget(vip) {
                        warn!(%error, vip, "failed to remove the counters of an unused entry");
                    }
                }
            }
        }
        debug!(dropped, "removed unused entries");
    }
}
