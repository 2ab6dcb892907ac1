//! Takes the data path of a node off the machine.

use anyhow::{Context, Result};
use tracing::info;

use super::{Uninstall, bpffs};
use crate::datapath;

/// Removes links, which detaches the programs, and maps.
pub(super) fn uninstall(flags: &Uninstall) -> Result<()> {
    let pins = bpffs(flags.bpffs.as_ref(), &flags.node);
    datapath::detach(&pins)
        .with_context(|| format!("failed to remove the pins in {}", pins.display()))?;
    info!(pins = %pins.display(), "data path removed");
    Ok(())
}
