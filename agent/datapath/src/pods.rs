//! The programs on each pod's link: attached when the pod is added, replaced in place by the next agent, and removed with the
//! link.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use aya::maps::{HashMap, Map, MapData};
use dormouse_agent_netlink::Rtnl;
use dormouse_agent_netlink::classifier::{
    Position, Side, add_clsact, filter, remove, remove_clsact,
};
use dormouse_ebpf::maps::Pod;
use nix::libc;
use parking_lot::Mutex;

use super::entry::{PodEntry, pod_keys};
use super::error::DatapathError;
use super::facts::NodeFacts;
use super::load::{Loaded, POD_PROGRAMS};

/// The position of the programs among the classifiers of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stand {
    /// The normal position, replacing the programs of a previous agent.
    Own,
    /// Behind the programs of the previous agent, until its connections have been copied.
    Behind,
}

impl Stand {
    /// Behind the pod's limiter, which has a lower priority number.
    const fn position(self, ifindex: u32, side: Side) -> Position {
        let priority = match self {
            Self::Own => 16,
            Self::Behind => 17,
        };
        Position {
            ifindex,
            side,
            priority,
        }
    }
}

/// The pod table, and the programs on pods' links.
pub struct Pods {
    facts: Arc<NodeFacts>,
    links: Mutex<Links>,
}

struct Links {
    table: HashMap<MapData, [u8; 16], Pod>,
    rtnl: Rtnl,
    /// Open while links may be added.
    programs: Vec<(&'static str, Side, OwnedFd)>,
}

impl std::fmt::Debug for Pods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pods").finish_non_exhaustive()
    }
}

impl Pods {
    pub(super) fn open(loaded: &mut Loaded, facts: &Arc<NodeFacts>) -> Result<Self, DatapathError> {
        let table =
            HashMap::try_from(loaded.take("pod")?).map_err(DatapathError::map("open", "pod"))?;
        let [name, _] = POD_PROGRAMS.map(|(name, _)| name);
        let rtnl = Rtnl::open().map_err(DatapathError::program("attach", name))?;
        let programs = POD_PROGRAMS
            .into_iter()
            .map(|(name, side)| {
                let fd = loaded.classifier(name)?.fd();
                let fd = fd.map_err(DatapathError::program("attach", name))?;
                let fd = fd.as_fd().try_clone_to_owned();
                let fd = fd.map_err(DatapathError::program("attach", name))?;
                Ok((name, side, fd))
            })
            .collect::<Result<_, DatapathError>>()?;
        Ok(Self {
            facts: Arc::clone(facts),
            links: Mutex::new(Links {
                table,
                rtnl,
                programs,
            }),
        })
    }

    /// Adds a pod: its solicitations are answered, and flows can be forwarded to it.
    pub fn add(&self, pod: PodEntry) -> Result<(), DatapathError> {
        let mut links = self.links.lock();
        // The row is written before the programs are attached, and marked as seen after that.
        links.insert(&pod, false)?;
        if links.attach(pod.ifindex, Stand::Own)? {
            return links.insert(&pod, true);
        }
        drop(links);
        self.facts.expect_unseen()
    }

    /// Removes an address of a pod; IPv4 is mapped. An unknown address is no error.
    pub fn remove(&self, address: Ipv6Addr) -> Result<(), DatapathError> {
        match self.links.lock().table.remove(&address.octets()) {
            Ok(()) | Err(aya::maps::MapError::KeyNotFound) => Ok(()),
            Err(aya::maps::MapError::SyscallError(error))
                if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
            {
                Ok(())
            }
            Err(error) => Err(DatapathError::map("remove from", "pod")(error)),
        }
    }

    /// Whether the pod table has this address; IPv4 is mapped.
    pub(super) fn has(&self, address: Ipv6Addr) -> bool {
        self.links.lock().table.get(&address.octets(), 0).is_ok()
    }

    /// The addresses in the pod table; IPv4 is mapped.
    pub fn addresses(&self) -> Result<BTreeSet<Ipv6Addr>, DatapathError> {
        self.links
            .lock()
            .table
            .keys()
            .map(|key| {
                key.map(Ipv6Addr::from)
                    .map_err(DatapathError::map("read", "pod"))
            })
            .collect()
    }

    /// Attaches the programs to the links of all pods in the pod table.
    pub(super) fn attach_all(&self, stands: Stand) -> Result<(), DatapathError> {
        let mut links = self.links.lock();
        for ifindex in links.interfaces()? {
            links.attach(ifindex, stands)?;
            if stands == Stand::Own {
                links.clear(ifindex)?;
            }
        }
        Ok(())
    }
}

impl Links {
    fn insert(&mut self, pod: &PodEntry, seen: bool) -> Result<(), DatapathError> {
        let row = Pod {
            ifindex: pod.ifindex,
            mac: pod.mac,
            seen: seen.into(),
            direct: (seen && pod.direct).into(),
        };
        for address in pod_keys(pod.address, pod.address4) {
            self.table
                .insert(address.octets(), row, 0)
                .map_err(DatapathError::map("insert into", "pod"))?;
        }
        Ok(())
    }

    /// ifindexes of the host sides of all pods' links.
    fn interfaces(&self) -> Result<Vec<u32>, DatapathError> {
        self.table
            .iter()
            .map(|pod| {
                pod.map(|(_, pod)| pod.ifindex)
                    .map_err(DatapathError::map("read", "pod"))
            })
            .collect()
    }

    /// Attaches the programs to a pod's link. False if there is no such link in this namespace.
    fn attach(&mut self, ifindex: u32, stand: Stand) -> Result<bool, DatapathError> {
        let mut requests = vec![add_clsact(ifindex)];
        requests.extend(self.programs.iter().map(|(name, side, fd)| {
            let position = stand.position(ifindex, *side);
            filter("attach to the pod's link", position, name, fd.as_fd())
        }));
        let [name, _] = POD_PROGRAMS.map(|(name, _)| name);
        match self.rtnl.batch(&requests) {
            Err(error) if error.source.raw_os_error() == Some(libc::ENODEV) => Ok(false),
            outcome => outcome
                .map(|()| true)
                .map_err(|error| DatapathError::program("attach", name)(error.source)),
        }
    }

    /// Removes the programs behind the normal position; no error if there are none.
    fn clear(&mut self, ifindex: u32) -> Result<(), DatapathError> {
        let requests = POD_PROGRAMS.map(|(_, side)| remove(Stand::Behind.position(ifindex, side)));
        let done = self.rtnl.carry_out(&requests);
        let [name, _] = POD_PROGRAMS.map(|(name, _)| name);
        done.map(drop)
            .map_err(|error| DatapathError::program("detach", name)(error))
    }
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
