//! Cores of their own for what is measured and for its load, as on a cluster, where they are different machines.

use std::fs;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The threads of this process use one core only, until this is dropped. Threads that begin meanwhile do so too, for good.
pub(crate) struct Kept(Vec<(Pid, CpuSet)>);

/// Limits the threads of this process to a core.
pub(crate) fn keep_to(core: usize) -> Result<Kept> {
    let mut only = CpuSet::new();
    only.set(core)?;
    let mut kept = Kept(Vec::new());
    for thread in fs::read_dir("/proc/self/task").context("failed to list the threads")? {
        let name = thread?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok());
        let thread = Pid::from_raw(id.context("a thread has no number")?);
        let before = sched_getaffinity(thread)?;
        sched_setaffinity(thread, &only).context("failed to limit a thread to a core")?;
        kept.0.push((thread, before));
    }
    Ok(kept)
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (thread, before) in &self.0 {
            // It may have ended.
            let _ = sched_setaffinity(*thread, before);
        }
    }
}
