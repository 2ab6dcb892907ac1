//! Apps: their VIPs' entries, the node lease by which entries act, and the connections that are counted for them.

use std::sync::Arc;

use dormouse_ebpf::service::Mode;
use parking_lot::Mutex;

use super::arrays::Arrays;
use super::counts::{Counters, VipCount};
use super::entry::Entry;
use super::error::DatapathError;
use super::flows::{Flows, Sweep, Swept};
use super::grace::Graces;
use super::load::Loaded;
use super::pool::Pool;
use super::{app_entries, clock};

/// A flow without a packet for so long has lost its client. Connections to Services may be silent for longer.
const FLOW_IDLE_NS: u64 = 10 * 60 * 1_000_000_000;

/// VIPs whose counters are read in one turn under the lock.
const TURN: usize = 64;

/// The entries of apps. Their slots lie in memory, and are written by who holds the lock on their counters.
#[derive(Debug)]
pub struct Apps {
    arrays: Arc<Arrays>,
    pool: Arc<Pool>,
    graces: Graces,
    counters: Mutex<Counters>,
    flows: Flows,
}

impl Apps {
    pub(super) fn open(
        loaded: &mut Loaded,
        arrays: &Arc<Arrays>,
        pool: &Arc<Pool>,
        (graces, flows): (&Graces, &Flows),
    ) -> Result<Self, DatapathError> {
        let counters = Counters::open(loaded, app_entries::followed(arrays))?;
        Ok(Self {
            counters: Mutex::new(counters),
            flows: flows.clone(),
            arrays: Arc::clone(arrays),
            pool: Arc::clone(pool),
            graces: graces.clone(),
        })
    }

    /// Puts a VIP's entry in force. After the next grace period no program decides by the entry before.
    pub fn publish(&self, entry: &Entry) -> Result<(), DatapathError> {
        match self.try_publish(entry) {
            // Ids in quarantine may be what lacks: after a grace period they are free.
            Err(DatapathError::Full { .. }) if self.pool.has_quarantined() => {
                self.graces.begin().wait();
                self.try_publish(entry)
            }
            done => done,
        }
    }

    fn try_publish(&self, entry: &Entry) -> Result<(), DatapathError> {
        let mut counters = self.counters.lock();
        if entry.mode == Mode::Serve {
            counters.follow(entry.vip)?;
        }
        app_entries::publish(&self.arrays, &self.pool, entry)
    }

    /// Switches VIPs whose backends stay from one mode to the other: one word each.
    pub fn flip(&self, vips: &[u32], mode: Mode) {
        for vips in vips.chunks(TURN) {
            let _writer = self.counters.lock();
            app_entries::flip(&self.arrays, vips, mode);
        }
    }

    /// Removes a VIP's entry: its packets go to an activator, and the first of them raises a miss.
    pub fn forget(&self, vip: u32) -> Result<(), DatapathError> {
        let mut counters = self.counters.lock();
        app_entries::forget(&self.arrays, &self.pool, vip);
        counters.forget(vip)
    }

    /// The VIPs that the maps hold, sorted.
    pub fn followed(&self) -> Vec<u32> {
        app_entries::followed(&self.arrays)
    }

    /// Renews the node lease: until then (CLOCK_BOOTTIME nanoseconds) leased entries act.
    pub fn grant(&self, lease_until_ns: u64) {
        self.arrays.lease.store(0, lease_until_ns);
    }

    /// Ends a lease without end, which an agent without control left: from now on only grants count.
    pub fn expect_grants(&self) {
        if self.arrays.lease.load(0) == Some(u64::MAX) {
            self.grant(0);
        }
    }

    /// What was counted since the call before, for each VIP that had a connection in between.
    pub fn counts(&self) -> Vec<VipCount> {
        self.counters.lock().take(clock::boottime_ns())
    }

    /// Ends flows that have been idle for ten minutes; to be called each half minute or so. Blocks for up to some
    /// seconds, but no other user of the data path.
    pub fn expire_flows(&self) {
        match self.expire_idle(clock::boottime_ns(), FLOW_IDLE_NS) {
            Ok(0) => {}
            Ok(ended) => tracing::debug!(ended, "idle flows ended"),
            Err(error) => tracing::warn!(%error, "failed to count ended connections"),
        }
    }

    /// Ends flows without a packet for `idle_ns`, so that a client that vanished keeps no app awake. Returns how many.
    pub fn expire_idle(&self, now_ns: u64, idle_ns: u64) -> Result<usize, DatapathError> {
        let swept = self.sweep().walk(now_ns, idle_ns);
        self.swept(swept, now_ns)
    }

    /// Begins a look at all connections, which takes no lock of apps and ends in [`Apps::swept`].
    pub fn sweep(&self) -> Sweep {
        let followed = self.counters.lock().followed();
        let open = followed.chunks(TURN);
        let open = open.flat_map(|vips| self.counters.lock().open_of(vips));
        self.flows.sweep(open.collect())
    }

    /// Counts what a sweep found to have ended. Returns how many flows it removed.
    pub fn swept(&self, swept: Swept, now_ns: u64) -> Result<usize, DatapathError> {
        swept.count(&mut self.counters.lock(), now_ns)
    }
}
