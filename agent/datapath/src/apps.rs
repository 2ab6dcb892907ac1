//! Apps: the entries of their VIPs, the node lease, and their connection counters.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::sync::Arc;

use dormouse_ebpf::maps::LEASE_STALE;
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
use super::shared::Shared;
use super::{app_entries, clock};

/// Idle timeout of flows to apps, in nanoseconds; Services have longer ones.
const FLOW_IDLE_NS: u64 = 10 * 60 * 1_000_000_000;

/// Number of VIPs whose counters are read per turn under the lock.
const TURN: usize = 64;

/// Apps' entries and counters. Slots are in shared memory; only the holder of the counters' lock writes them.
#[derive(Debug)]
pub struct Apps {
    arrays: Arc<Arrays>,
    pool: Arc<Pool>,
    graces: Graces,
    counters: Mutex<Counters>,
    /// VIPs in mode proxy that serve, because no activator answers.
    served_stale: Mutex<BTreeSet<u32>>,
    flows: Flows,
}

impl Apps {
    pub(super) fn open(loaded: &mut Loaded, shared: &Shared) -> Result<Self, DatapathError> {
        let counters = Counters::open(loaded, app_entries::followed(&shared.arrays))?;
        Ok(Self {
            counters: Mutex::new(counters),
            served_stale: Mutex::default(),
            flows: shared.flows.clone(),
            arrays: Arc::clone(&shared.arrays),
            pool: Arc::clone(&shared.pool),
            graces: shared.graces.clone(),
        })
    }

    /// Writes a VIP's entry. After the next grace period, no program uses the previous one.
    pub fn publish(&self, entry: &Entry) -> Result<(), DatapathError> {
        match self.try_publish(entry) {
            // Ids may be in quarantine: a grace period frees them.
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
        self.served_stale.lock().remove(&entry.vip);
        app_entries::publish(&self.arrays, &self.pool, entry)
    }

    /// Switches VIPs to another mode and keeps their backends: one word each. Returns those that were in another mode by what control
    /// has sent.
    pub fn flip(&self, vips: &[u32], mode: Mode) -> Vec<u32> {
        let mut switched = self.switch(vips, mode);
        let mut served = self.served_stale.lock();
        // Those that serve only while no activator answers are not to serve again.
        switched.retain(|vip| !served.remove(vip));
        switched
    }

    fn switch(&self, vips: &[u32], mode: Mode) -> Vec<u32> {
        let flip = |vips: &[u32]| {
            let _writer = self.counters.lock();
            app_entries::flip(&self.arrays, vips, mode)
        };
        vips.chunks(TURN).flat_map(flip).collect()
    }

    /// Whether a VIP has open connections, without those to an activator.
    pub fn is_used(&self, vip: u32) -> bool {
        self.counters.lock().is_used(vip)
    }

    /// Removes a VIP's entry: its packets are sent to an activator, and the first one raises a miss.
    pub fn forget(&self, vip: u32) -> Result<(), DatapathError> {
        let mut counters = self.counters.lock();
        self.served_stale.lock().remove(&vip);
        app_entries::forget(&self.arrays, &self.pool, vip);
        counters.forget(vip)
    }

    /// Makes the next packet to each VIP raise a miss again: those without an entry, and those whose entry says that there is no
    /// such VIP, which is removed. Entries of other VIPs stay.
    pub fn expect_misses(&self, vips: &[u32]) -> Result<(), DatapathError> {
        for vip in vips {
            if self.arrays.slot(*vip).0.gone {
                self.forget(*vip)?;
            } else {
                let _writer = self.counters.lock();
                app_entries::expect_miss(&self.arrays, *vip);
            }
        }
        Ok(())
    }

    /// Indexes of the VIPs with an entry, sorted.
    pub fn followed(&self) -> Vec<u32> {
        app_entries::followed(&self.arrays)
    }

    /// Renews the node lease; until then (CLOCK_BOOTTIME nanoseconds) leased entries are valid. Ends what [`Apps::use_stale`] began.
    pub fn grant(&self, lease_until_ns: u64) {
        self.proxy_again();
        self.arrays.lease.store(0, lease_until_ns);
    }

    /// Whether leased entries are used also after the end of the node lease.
    pub fn is_stale(&self) -> bool {
        let lease = self.arrays.lease.load(0);
        lease.is_some_and(|lease| lease & LEASE_STALE != 0 && lease != u64::MAX)
    }

    /// Sets whether leased entries are used also after the end of the node lease: the last entries, while neither control
    /// nor an activator answers. Entries in mode proxy serve with the backends that they have, also those that an earlier agent wrote.
    pub fn use_stale(&self, stale: bool) -> Result<(), DatapathError> {
        let Some(lease) = self.arrays.lease.load(0).filter(|lease| *lease != u64::MAX) else {
            return Ok(());
        };
        if !stale {
            self.grant(lease & !LEASE_STALE);
            return Ok(());
        }
        self.arrays.lease.store(0, lease | LEASE_STALE);
        self.serve_proxied()
    }

    fn serve_proxied(&self) -> Result<(), DatapathError> {
        let vips = app_entries::proxied(&self.arrays);
        for vip in &vips {
            self.counters.lock().follow(*vip)?;
        }
        let served = self.switch(&vips, Mode::Serve);
        self.served_stale.lock().extend(served);
        Ok(())
    }

    fn proxy_again(&self) {
        let served = std::mem::take(&mut *self.served_stale.lock());
        let served: Vec<u32> = served.into_iter().collect();
        self.switch(&served, Mode::Proxy);
    }

    /// Removes a pod that has ended from all entries. Control does so too, but cannot be reached.
    pub fn withdraw(&self, pod: Ipv6Addr) -> Result<(), DatapathError> {
        for vip in self.followed() {
            let _writer = self.counters.lock();
            app_entries::withdraw(&self.arrays, &self.pool, vip, pod)?;
        }
        Ok(())
    }

    /// Ends an unlimited lease that an agent without control left; from now on grants are required.
    pub fn expect_grants(&self) {
        if self.arrays.lease.load(0) == Some(u64::MAX) {
            self.grant(0);
        }
    }

    /// The counts since the last call, for each VIP that had a connection.
    pub fn counts(&self) -> Vec<VipCount> {
        self.counters.lock().take(clock::boottime_ns())
    }

    /// Removes flows whose connections are over, those of apps also after ten idle minutes; should be called about every half
    /// minute, and when [`Apps::is_sweep_due`]. Blocks the caller for up to some seconds, but no other user of the data path.
    pub fn expire_flows(&self) {
        match self.expire_idle(clock::boottime_ns(), FLOW_IDLE_NS) {
            Ok(0) => {}
            Ok(ended) => tracing::debug!(ended, "idle flows ended"),
            Err(error) => tracing::warn!(%error, "failed to count ended connections"),
        }
    }

    /// Whether the flow table is so full that it should be swept before its time.
    pub fn is_sweep_due(&self) -> bool {
        self.flows.is_sweep_due()
    }

    /// Removes flows whose connections are over, and apps' established ones without a packet for `idle_ns`, so that a vanished
    /// client keeps no app awake. Returns their number.
    pub fn expire_idle(&self, now_ns: u64, idle_ns: u64) -> Result<usize, DatapathError> {
        let swept = self.sweep().walk(now_ns, idle_ns);
        self.swept(swept, now_ns)
    }

    /// Starts a garbage collection of flows, which holds no lock of apps; its result is passed to [`Apps::swept`].
    pub fn sweep(&self) -> Sweep {
        let followed = self.counters.lock().followed();
        let open = followed.chunks(TURN);
        let open = open.flat_map(|vips| self.counters.lock().open_of(vips));
        self.flows.sweep(open.collect())
    }

    /// Counts the end of the flows that a collection found. Returns the number of removed flows.
    pub fn swept(&self, swept: Swept, now_ns: u64) -> Result<usize, DatapathError> {
        swept.count(&mut self.counters.lock(), now_ns)
    }
}
