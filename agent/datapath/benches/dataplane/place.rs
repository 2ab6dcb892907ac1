//! The place of a measured data path: a folder of pins and a cgroup, for the benchmarks without a network.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use dormouse_agent_datapath::{Config, XdpMode, detach};
use dormouse_ebpf::flow::FLOWS_MAX;

/// The uplink.
pub(crate) const UPLINK: &str = "up0";
/// The node's address.
pub(crate) const NODE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 0, 1);

/// The data path's folder and cgroup; removed at the end.
pub(crate) struct Place(pub(crate) Config);

impl Place {
    /// For a data path on [`UPLINK`].
    pub(crate) fn make(xdp: XdpMode) -> Self {
        let name = format!("bench-{}", std::process::id());
        let cgroup = cgroup_root().join(&name);
        std::fs::create_dir(&cgroup).unwrap();
        Self(Config {
            bpffs: PathBuf::from("/sys/fs/bpf/dormouse").join(name),
            uplink: UPLINK.to_owned(),
            cgroup,
            node_prefix: ("2001:db8:d0:0:0:1::".parse().unwrap(), 96),
            node_address: NODE,
            flows_max: FLOWS_MAX,
            xdp,
            log_packets: None,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = detach(&self.0.bpffs);
        let _ = std::fs::remove_dir(&self.0.cgroup);
    }
}

fn cgroup_root() -> PathBuf {
    let unified = PathBuf::from("/sys/fs/cgroup/unified");
    if unified.exists() {
        unified
    } else {
        PathBuf::from("/sys/fs/cgroup")
    }
}
