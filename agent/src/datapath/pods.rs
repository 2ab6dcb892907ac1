//! The programs on each pod's link: attached when the pod comes, given to the next agent's programs when that takes
//! over.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use aya::programs::TcAttachType;

use super::error::DatapathError;
use super::load::{Loaded, POD_PROGRAMS, attach_tcx, taken_over};

/// Where the links of pods are pinned, by the number of the host's end.
fn pin(pins: &Path, side: TcAttachType, ifindex: u32) -> PathBuf {
    pins.join(match side {
        TcAttachType::Ingress => format!("pod_{ifindex}"),
        _ => format!("pod_out_{ifindex}"),
    })
}

/// Sees to it that the programs run on a pod's link. False if it has none in this namespace.
pub(super) fn attach(
    loaded: &mut Loaded,
    pins: &Path,
    ifindex: u32,
) -> Result<bool, DatapathError> {
    let mut attached = true;
    for (name, side) in POD_PROGRAMS {
        attached &= attach_one(loaded, (name, side), &pin(pins, side, ifindex), ifindex)?;
    }
    Ok(attached)
}

fn attach_one(
    loaded: &mut Loaded,
    (name, side): (&'static str, TcAttachType),
    pin: &Path,
    ifindex: u32,
) -> Result<bool, DatapathError> {
    let program = loaded.classifier(name)?;
    let fd = program
        .fd()
        .and_then(|fd| fd.try_clone().map_err(Into::into))
        .map_err(DatapathError::program("take over", name))?;
    if taken_over(pin, fd.as_fd(), (name, ifindex.into()))? {
        return Ok(true);
    }
    let interface = nix::net::if_::if_indextoname(ifindex).unwrap_or_default();
    if interface.is_empty() {
        return Ok(false);
    }
    let link = attach_tcx(program, name, (&interface.to_string_lossy(), side))?;
    link.pin(pin).map_err(DatapathError::program("pin", name))?;
    Ok(true)
}

/// Takes the programs off a pod's link. One that has none is no error.
pub(super) fn detach(pins: &Path, ifindex: u32) -> Result<(), DatapathError> {
    for (name, side) in POD_PROGRAMS {
        match fs::remove_file(pin(pins, side, ifindex)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(DatapathError::program("unpin", name)(error));
            }
            _ => {}
        }
    }
    Ok(())
}
