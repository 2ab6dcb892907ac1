//! Opens the data path and the pod network of a node.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use anyhow::{Context, Result};
use dormouse_agent_datapath::{Datapath, SharedDatapath, pod_keys};
use dormouse_agent_pod::{Network, NetworkConfig, PodEntry, PodTable, Sysctls};
use tracing::info;

use crate::addresses::DISCARD;
use crate::cli::run::{Forwarding, Run};
use crate::deny::{self, DenyList};
use crate::doctor::probe::processes;
use crate::host_ports::HostPorts;
use crate::ndp::{self, Changes};
use crate::own_node::{NODE_PREFIX_LENGTH, Place, PodRanges};
use crate::profile::Ndp;

/// Opens the pod network, with the pods that live and their ports of the node. Returns also the changes to announce.
pub(super) fn pods(
    run: &Run,
    ranges: &PodRanges,
    datapath: &SharedDatapath,
    host_ports: &Arc<HostPorts>,
) -> Result<(Arc<Network>, Arc<Changes>)> {
    let (table, changes) = ndp::announced(Table {
        datapath: Arc::clone(datapath),
        host_ports: Arc::clone(host_ports),
    });
    let config = network_config(run, ranges);
    let network =
        Network::open(config, Box::new(table)).context("failed to start the pod network")?;
    forget_gone(datapath, &network)?;
    host_ports.recover(&network.pods().iter().map(|pod| pod.address).collect());
    Ok((Arc::new(network), changes))
}

/// The ports of the node that pods have.
pub(super) fn host_ports(run: &Run) -> Result<Arc<HostPorts>> {
    let host_ports = HostPorts::open(&run.node.node, &run.state_dir);
    Ok(Arc::new(
        host_ports.context("failed to read the ports of pods")?,
    ))
}

/// Removes pods from the data path's table that were removed by `offline` (which has no data path) while no agent ran.
fn forget_gone(datapath: &SharedDatapath, network: &Network) -> Result<()> {
    let pods = network.pods().into_iter();
    let living: BTreeSet<Ipv6Addr> = pods
        .flat_map(|pod| pod_keys(pod.address, pod.address4))
        .collect();
    for address in datapath.pods.addresses()?.difference(&living) {
        datapath.pods.remove(*address)?;
    }
    Ok(())
}

/// Sets the forwarder of packets between pods, by `--forwarding`.
pub(super) fn forward(run: &Run, place: &Place, datapath: &SharedDatapath) -> Result<()> {
    let forwarder = match run.datapath.forwarding {
        Forwarding::Direct if place.pods.is_ok() => {
            Some(nix::net::if_::if_nametoindex(run.node.bridge.as_str())?)
        }
        _ => None,
    };
    let set = datapath
        .facts
        .forward_by(forwarder, &run.node_facts(place)?);
    set.context("failed to set the forwarder of packets between pods")
}

/// Leaves connections that a kube-proxy has translated which runs on this node to its rules, also after its end: until an agent starts
/// without one.
pub(super) fn beside_proxy(datapath: &SharedDatapath) -> Result<()> {
    let is_beside = !processes::kube_proxy().is_empty();
    if is_beside {
        info!("kube-proxy runs on this node: established connections are left to its rules");
    }
    let set = datapath.facts.set_beside_proxy(is_beside);
    set.context("failed to leave established connections to kube-proxy")
}

pub(super) fn datapath(run: &Run, place: &Place) -> Result<Datapath> {
    let ranges = place.pods.as_ref();
    // Without pods, a prefix that no packet has.
    let prefix = ranges.map_or(DISCARD, |ranges| ranges.prefix.network());
    let config = dormouse_agent_datapath::Config {
        bpffs: run.pins(),
        uplink: run.node.uplink.clone(),
        cgroup: run.datapath.cgroup.clone(),
        node_prefix: (prefix, NODE_PREFIX_LENGTH),
        node_address: place.address.unwrap_or(Ipv6Addr::UNSPECIFIED),
        flows_max: run.datapath.flows_max,
        xdp: run.datapath.xdp.into(),
        log_packets: run.datapath.log_packets,
    };
    let datapath = Datapath::open(config).context("failed to start the data path")?;
    datapath
        .facts
        .answer(ranges.is_ok() && run.node.network_profile.ndp == Ndp::Answer)
        .context("failed to configure the data path for the network profile")?;
    let limited = datapath.limit_wakes(&run.datapath.wakes.limits()?);
    limited.context("failed to limit the wakes of sources")?;
    if ranges.is_err() {
        // All pods are another plugin's: no program sees their packets, only their calls.
        let expected = datapath.facts.expect_unseen();
        expected.context("failed to prepare the data path for pods of another plugin")?;
    }
    Ok(datapath)
}

/// Opens the deny list: that of the previous agent is in force until then.
pub(super) fn deny(
    run: &Run,
    listener: UnixListener,
    datapath: &SharedDatapath,
) -> Result<DenyList> {
    let config = deny::Config {
        state_dir: run.state_dir.clone(),
        file: run.datapath.deny_file.clone(),
        listener,
    };
    DenyList::open(config, datapath).context("failed to open the deny list")
}

pub(super) fn network_config(run: &Run, ranges: &PodRanges) -> NetworkConfig {
    NetworkConfig {
        range4: ranges.range4,
        bridge: run.node.bridge.clone(),
        delivered: ranges.delivered,
        sysctls: Sysctls::below(run.datapath.sysctls.clone()),
        ..NetworkConfig::new(
            ranges.prefix,
            run.state_dir.clone(),
            run.node.uplink.clone(),
        )
    }
}

/// The data path's pod table and the ports of pods, as the interface that the pod network needs.
struct Table {
    datapath: SharedDatapath,
    host_ports: Arc<HostPorts>,
}

impl PodTable for Table {
    fn add(&mut self, pod: PodEntry) -> io::Result<()> {
        self.datapath.pods.add(pod).map_err(io::Error::other)
    }

    fn remove(&mut self, address: Ipv6Addr, address4: Option<Ipv4Addr>) -> io::Result<()> {
        for key in pod_keys(address, address4) {
            self.datapath.pods.remove(key).map_err(io::Error::other)?;
        }
        self.host_ports.remove(address);
        Ok(())
    }
}
