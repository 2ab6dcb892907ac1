//! The programs on each pod's link: attached when the pod is added, replaced in place by the next agent, and removed with the
//! link.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;

use aya::maps::{HashMap, Map, MapData};
use dormouse_ebpf::maps::Pod;
use nix::libc;

use super::error::DatapathError;
use super::load::{Loaded, POD_PROGRAMS};
use dormouse_agent_netlink::classifier::{Side, add_clsact, filter, remove, remove_clsact};
use dormouse_agent_netlink::{Request, Rtnl};

/// The position of the programs among the classifiers of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stand {
    /// The normal position, replacing the programs of a previous agent.
    Own,
    /// Behind the programs of the previous agent, until its connections have been copied.
    Behind,
}

impl Stand {
    /// Higher than the pod's limiter, so it runs later.
    const fn priority(self) -> u16 {
        match self {
            Self::Own => 16,
            Self::Behind => 17,
        }
    }
}

/// Attaches the programs to a pod's link. False if there is no such link in this namespace.
pub(super) fn attach(
    loaded: &mut Loaded,
    rtnl: &mut Rtnl,
    (ifindex, stands): (u32, Stand),
) -> Result<bool, DatapathError> {
    let mut requests = vec![add_clsact(ifindex)];
    for (name, side) in POD_PROGRAMS {
        requests.push(program(loaded, (name, side), ifindex, stands)?);
    }
    let [name, _] = POD_PROGRAMS.map(|(name, _)| name);
    match rtnl.batch(&requests) {
        Err(error) if error.source.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        outcome => outcome
            .map(|()| true)
            .map_err(|error| DatapathError::program("attach", name)(error.source)),
    }
}

fn program(
    loaded: &mut Loaded,
    (name, side): (&'static str, Side),
    ifindex: u32,
    place: Stand,
) -> Result<Request, DatapathError> {
    let program = loaded.classifier(name)?;
    let fd = program
        .fd()
        .map_err(DatapathError::program("attach", name))?;
    Ok(filter(
        "attach to the pod's link",
        ifindex,
        (side, place.priority()),
        (name, fd.as_fd()),
    ))
}

/// Removes the programs behind the normal position; no error if there are none.
pub(super) fn clear(rtnl: &mut Rtnl, ifindex: u32) -> Result<(), DatapathError> {
    let requests = POD_PROGRAMS.map(|(_, side)| remove(ifindex, (side, Stand::Behind.priority())));
    let done = rtnl.carry_out(&requests);
    let [name, _] = POD_PROGRAMS.map(|(name, _)| name);
    done.map(drop)
        .map_err(|error| DatapathError::program("detach", name)(error))
}

/// Removes the programs from the links of all pods in a node's pod table.
pub(super) fn detach(bpffs: &Path) -> Result<(), DatapathError> {
    let failed = |source| DatapathError::Folder {
        path: bpffs.to_path_buf(),
        source,
    };
    let mut requests = Vec::new();
    for folder in fs::read_dir(bpffs).map_err(failed)? {
        let pin = folder.map_err(failed)?.path().join("pod");
        if !pin.exists() {
            continue;
        }
        let map = MapData::from_pin(pin)
            .and_then(Map::from_map_data)
            .map_err(DatapathError::map("open", "pod"))?;
        let pods: HashMap<_, [u8; 16], Pod> =
            HashMap::try_from(map).map_err(DatapathError::map("open", "pod"))?;
        let pods = pods.iter().filter_map(Result::ok);
        requests.extend(pods.map(|(_, pod)| remove_clsact(pod.ifindex)));
    }
    // Errors are ignored: the link has been deleted.
    let done = Rtnl::open().and_then(|mut rtnl| rtnl.carry_out(&requests));
    done.map(drop).map_err(failed)
}
