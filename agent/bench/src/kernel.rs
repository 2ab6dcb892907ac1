//! The backends of Services in the kernel's maps, as programs read them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_agent_datapath::Pinned;

use crate::objects;

/// Pause between two looks at the maps: what it adds to a latency is small beside its bound.
const LOOK_EVERY: Duration = Duration::from_micros(20);
/// Longest wait for one change.
const VISIBLE_MAX: Duration = Duration::from_secs(30);

/// The maps of the node.
pub(crate) struct Kernel {
    pinned: Pinned,
    /// Slots by cluster IP.
    slots: HashMap<IpAddr, u32>,
}

impl Kernel {
    /// Opens the maps in this folder of pins, and finds the slots of all Services.
    pub(crate) fn open(bpffs: &Path) -> Result<Self> {
        let pinned = Pinned::open(bpffs).context("failed to open the node's maps")?;
        let slots = pinned.followed().filter_map(|(slot, ..)| {
            let frontend = pinned.own_frontend(slot)?;
            (frontend.port == objects::SERVICE_PORT).then_some((frontend.address, slot))
        });
        let slots = slots.collect();
        Ok(Self { pinned, slots })
    }

    /// Fails unless all Services have as many backends as the API's.
    pub(crate) fn check(&self, services: u32, endpoints: u32) -> Result<()> {
        for service in 0..services {
            let found = self.backends(service)?.len();
            ensure!(
                found == endpoints as usize,
                "service {service} has {found} backends in the kernel, not {endpoints}"
            );
        }
        Ok(())
    }

    /// Waits until the first endpoint of a Service is that of this turn. Blocks; returns the time of the look that saw it.
    pub(crate) fn await_turn(&self, service: u32, turn: u32) -> Result<Instant> {
        let (wanted, began) = (objects::first(service, turn), Instant::now());
        while !self.backends(service)?.contains(&wanted) {
            ensure!(
                began.elapsed() < VISIBLE_MAX,
                "service {service} does not have the endpoint of turn {turn}"
            );
            thread::sleep(LOOK_EVERY);
        }
        Ok(Instant::now())
    }

    fn backends(&self, service: u32) -> Result<Vec<(IpAddr, u16)>> {
        let address = IpAddr::from(objects::cluster_ip(service));
        let slot = self.slots.get(&address);
        let slot = slot.with_context(|| format!("service {service} is not in the kernel"))?;
        let (_, set) = self.pinned.slot(*slot);
        Ok(self.pinned.backends(set).collect())
    }
}
