//! The capabilities of a process, reduced for good.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Reduces the capabilities that the calling thread and what it executes can ever get (the bounding set).
pub(crate) fn limit(kept: CapabilitySet) -> io::Result<()> {
    for capability in every().difference(kept).iter() {
        match remove_capability_from_bounding_set(capability) {
            // A capability that this kernel does not know.
            Err(rustix::io::Errno::INVAL) => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Reduces the capabilities that the calling thread has.
pub(crate) fn keep(kept: CapabilitySet) -> io::Result<()> {
    clear_ambient_capability_set()?;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    Ok(())
}

/// Gives up all others, also in the bounding set where the process may change it. Those that it does not have are no error: the process of a
/// container has few.
pub(crate) fn reduce(kept: CapabilitySet) -> io::Result<()> {
    let own = capabilities(None)?;
    if own.effective.contains(CapabilitySet::SETPCAP) {
        limit(kept)?;
    }
    keep(kept & own.permitted)
}

/// All that have a name.
fn every() -> CapabilitySet {
    CapabilitySet::iter_names(&CapabilitySet::all())
        .map(|(_name, capability)| capability)
        .collect()
}
