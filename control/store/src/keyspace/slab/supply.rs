//! Regions that a thread makes resident before they are needed: the kernel takes longer to clear a
//! page than a restore takes to fill it.

use std::{
    io,
    sync::mpsc::{Receiver, sync_channel},
    thread::Builder,
};

use memmap2::{MmapMut, MmapOptions};

use super::REGION_BYTES;

/// Regions that are ready at most.
const READY_MAX: usize = 2;

/// The regions. The thread ends when this is dropped.
#[derive(Debug)]
pub(in crate::keyspace) struct Supply(Receiver<MmapMut>);

impl Supply {
    /// Starts the thread.
    pub(in crate::keyspace) fn start() -> io::Result<Self> {
        let (ready, regions) = sync_channel(READY_MAX);
        let thread = Builder::new().name("store-map".to_owned());
        thread.spawn(move || {
            let mut options = MmapOptions::new();
            options.len(REGION_BYTES).populate();
            while let Ok(region) = options.map_anon() {
                if ready.send(region).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self(regions))
    }

    /// A region, if one is ready.
    pub(super) fn take(&self) -> Option<MmapMut> {
        self.0.try_recv().ok()
    }
}
