//! Starts a node's parts in the order of their dependencies, and stops them together.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use dormouse_agent_datapath::{Datapath, Pinned, SharedDatapath, pod_keys};
use dormouse_agent_inspect as inspect;
use dormouse_agent_pod::{
    Ipv4Range, Network, NetworkConfig, NodePrefix, PodEntry, PodTable, Sysctls, saved_config,
};
use dormouse_agent_services::Strictness;
use dormouse_agent_sys::retry;
use dormouse_fleet::Stale;
use dormouse_fleet::lease::LEASE_DEFAULT;
use dormouse_fleet::node as fleet;
use dormouse_fleet::proto::NodeStatus;
use nix::fcntl::{Flock, FlockArg};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{Forwarding, Run, RuntimeKind, bpffs};
use crate::cni;
use crate::host_ports::HostPorts;
use crate::metrics::{self, Collected};
use crate::ndp::{self, Announcer, Changes};
use crate::node::{Activators, EpochFile, Gone, Node, Pods, Routes};
use crate::profile::Ndp;
use crate::runtime::{Runtime, RuntimeConfig};
use crate::services_sync::{self, Origin, ServicesSync};
use crate::source::fleet::Source;
use crate::source::fleet_logs::FleetLogs;
use crate::source::fleet_state::FleetState;

/// Time that open requests get to finish when the agent stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the node until SIGTERM or SIGINT.
pub(super) fn run(run: Run, prefix: NodePrefix) -> Result<()> {
    let lock = lock(&run.state_dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(serve(run, prefix));
    runtime.shutdown_timeout(STOP_TIMEOUT);
    drop(lock);
    outcome
}

/// Locks the state folder: two agents on one node would undo each other's changes.
fn lock(state_dir: &Path) -> Result<Flock<OwnedFd>> {
    let failed = || format!("failed to use the state folder {}", state_dir.display());
    fs::create_dir_all(state_dir).with_context(failed)?;
    let path = state_dir.join("agent.lock");
    let attempt = || {
        let file = File::create(&path)?;
        let locked = Flock::lock(OwnedFd::from(file), FlockArg::LockExclusiveNonblock);
        locked.map_err(|(_, error)| io::Error::from(error))
    };
    let is_held = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    retry::wait(retry::INSTANT, is_held, attempt).map_err(|error| {
        if !is_held(&error) {
            return anyhow::Error::new(error).context(failed());
        }
        anyhow::anyhow!(
            "another agent uses {}; stop it first, or give --state-dir",
            state_dir.display()
        )
    })
}

/// A flag's value as it is written on the command line.
fn word(value: &impl ValueEnum) -> Option<String> {
    let value = value.to_possible_value()?;
    Some(value.get_name().to_owned())
}

async fn serve(run: Run, prefix: NodePrefix) -> Result<()> {
    info!(
        node = run.node, uplink = run.uplink, network_profile = run.network_profile.name, prefix = %prefix, delivered = run.prefix, prefix4 = run.prefix4.map(Ipv4Range::cidr), address = %run.address,
        control = run.control, forwarding = word(&run.forwarding), runtime = word(&run.runtime), state_dir = %run.state_dir.display(),
        socket = %run.socket.display(), cgroup = %run.cgroup.display(), metrics = %run.metrics,
        "starting"
    );
    let shutdown = CancellationToken::new();
    check_address(run.address)?;
    // Steps that can be refused come first, so that a node that does not start remains unchanged.
    let metrics_listener = metrics::bind(run.metrics)
        .await
        .with_context(|| format!("failed to listen on {} for metrics", run.metrics))?;
    let cni_listener = cni::bind(&run.socket)
        .with_context(|| format!("failed to listen on {}", run.socket.display()))?;
    network_config(&run, prefix)?
        .check()
        .context("failed to start the pod network")?;
    let conflist = run.conflist.conflist(&run.socket, &run.state_dir);
    let (programmed, in_force) = watch::channel(was_in_force(&run));
    let datapath = Arc::new(open_datapath(&run, prefix)?);
    let (network, host_ports, changes) = open_pods(&run, prefix, &datapath)?;
    forward(&run, &datapath)?;
    let announcer = Announcer::new(run.network_profile, &run.uplink, prefix, changes)
        .on_renewal(refresh(&datapath));
    let collected = Collected {
        datapath: Arc::clone(&datapath),
        network: Arc::clone(&network),
        fleet: Arc::new(FleetState::default()),
        kubernetes: run.access()?.map(|_| Arc::default()),
    };
    let services = follow(&run, &collected, (programmed, &host_ports), &shutdown).await?;
    let node = join(&run, prefix, &collected)?;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(metrics::serve(
        metrics_listener,
        collected,
        inspect::services::route(services.as_ref().map(ServicesSync::services)),
        in_force.clone(),
        shutdown.clone(),
    ));
    tasks.spawn(cni::serve(
        cni_listener,
        cni::Parts {
            network,
            host_ports: Some(host_ports),
            in_force,
        },
        conflist,
        shutdown.clone(),
    ));
    tasks.spawn(announcer.run(shutdown.clone()));
    let looped = tokio::spawn(node.run(shutdown.clone()));
    let followed = services.map(|sync| tokio::spawn(sync.run(shutdown.clone())));
    info!(node = run.node, "running");
    wait_for_the_end(&mut tasks, &shutdown).await?;
    let _ = tokio::time::timeout(STOP_TIMEOUT, looped).await;
    if let Some(followed) = followed {
        let _ = tokio::time::timeout(STOP_TIMEOUT, followed).await;
    }
    let _ = tokio::time::timeout(STOP_TIMEOUT, async {
        while tasks.join_next().await.is_some() {}
    })
    .await;
    Ok(())
}

/// Opens the pod network, with the pods that live and their ports of the node. Returns also the changes to announce.
fn open_pods(
    run: &Run,
    prefix: NodePrefix,
    datapath: &SharedDatapath,
) -> Result<(Arc<Network>, Arc<HostPorts>, Arc<Changes>)> {
    let host_ports = HostPorts::open(&run.node, &run.state_dir);
    let host_ports = Arc::new(host_ports.context("failed to read the ports of pods")?);
    let (table, changes) = ndp::announced(Table {
        datapath: Arc::clone(datapath),
        host_ports: Arc::clone(&host_ports),
    });
    let network = open_network(run, prefix, table)?;
    forget_gone(datapath, &network)?;
    host_ports.recover(&network.pods().iter().map(|pod| pod.address).collect());
    Ok((Arc::new(network), host_ports, changes))
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
fn forward(run: &Run, datapath: &SharedDatapath) -> Result<()> {
    let forwarder = match run.forwarding {
        Forwarding::Direct => Some(nix::net::if_::if_nametoindex(run.bridge.as_str())?),
        Forwarding::Kernel => None,
    };
    let set = datapath.facts.forward_by(forwarder, &run.node_facts()?);
    set.context("failed to set the forwarder of packets between pods")
}

/// Refreshes the uplink's programs and the link-layer address that the data path's neighbour advertisements contain.
fn refresh(datapath: &SharedDatapath) -> impl FnMut() + Send + use<> {
    let datapath = Arc::clone(datapath);
    move || {
        if let Err(error) = datapath.refresh_uplink() {
            warn!(%error, "the data path did not follow a change of the uplink: neighbour advertisements for pods may be missing, or carry an old link-layer address");
        }
    }
}

/// Whether Services are in force already, by a previous agent of this boot.
fn was_in_force(run: &Run) -> bool {
    saved_config::is_of_this_boot(&run.state_dir)
        && Pinned::open(&bpffs(run.bpffs.as_ref(), &run.node)).is_ok()
}

/// Starts to serve Services, if they have a source; `in_force` is set when all of them are.
async fn follow(
    run: &Run,
    parts: &Collected,
    (in_force, host_ports): (watch::Sender<bool>, &Arc<HostPorts>),
    shutdown: &CancellationToken,
) -> Result<Option<ServicesSync>> {
    let server = run.access()?.zip(parts.kubernetes.clone());
    let origin = match (run.manifests.clone(), server) {
        (Some(folder), _) => Origin::Manifests(folder),
        (None, Some((access, state))) => Origin::Kubernetes(access, state),
        (None, None) => {
            in_force.send_replace(true);
            return Ok(None);
        }
    };
    let config = services_sync::Config {
        origin,
        node: run.node_facts()?,
        strictness: if run.strict_source_ranges {
            Strictness::SourceRanges
        } else {
            Strictness::KubeProxy
        },
        apps: run.control.is_some(),
        health: run.health,
        in_force,
    };
    let sync = ServicesSync::open(
        config,
        Arc::clone(host_ports),
        Arc::clone(&parts.datapath),
        shutdown,
    )
    .await;
    sync.map(Some).context("failed to follow Services")
}

/// Checks that the node has the address: activators send to it, and packets to another one would be lost silently.
fn check_address(address: Ipv6Addr) -> Result<()> {
    let mut here = nix::ifaddrs::getifaddrs().context("failed to list this machine's addresses")?;
    let is_ours = here.any(|interface| {
        let own = interface.address.as_ref().and_then(|a| a.as_sockaddr_in6());
        own.is_some_and(|own| own.ip() == address)
    });
    anyhow::ensure!(
        is_ours,
        "--address {address}: no interface of this machine has it; give the node's own address on the uplink"
    );
    Ok(())
}

/// Returns at a signal, or when a task ended that must not end.
async fn wait_for_the_end(
    tasks: &mut tokio::task::JoinSet<io::Result<()>>,
    shutdown: &CancellationToken,
) -> Result<()> {
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    tokio::select! {
        _ = terminate.recv() => info!("SIGTERM"),
        _ = interrupt.recv() => info!("SIGINT"),
        Some(ended) = tasks.join_next() => {
            let ended = ended.map_err(io::Error::from).flatten();
            let cause = ended.as_ref().err().map(ToString::to_string);
            error!(cause, "a server task ended unexpectedly");
            shutdown.cancel();
            ended?;
        }
    }
    shutdown.cancel();
    Ok(())
}

fn open_datapath(run: &Run, prefix: NodePrefix) -> Result<Datapath> {
    let config = dormouse_agent_datapath::Config {
        bpffs: bpffs(run.bpffs.as_ref(), &run.node),
        uplink: run.uplink.clone(),
        cgroup: run.cgroup.clone(),
        node_prefix: (prefix.network(), prefix.length()),
        node_address: run.address,
        flows_max: run.flows_max,
    };
    let datapath = Datapath::open(config).context("failed to start the data path")?;
    datapath
        .facts
        .answer(run.network_profile.ndp == Ndp::Answer)
        .context("failed to configure the data path for the network profile")?;
    Ok(datapath)
}

fn network_config(run: &Run, prefix: NodePrefix) -> Result<NetworkConfig> {
    Ok(NetworkConfig {
        range4: run.prefix4,
        bridge: run.bridge.clone(),
        delivered: run.delivered()?,
        sysctls: Sysctls::below(run.sysctls.clone()),
        ..NetworkConfig::new(prefix, run.state_dir.clone(), run.uplink.clone())
    })
}

fn open_network(run: &Run, prefix: NodePrefix, table: impl PodTable + 'static) -> Result<Network> {
    let config = network_config(run, prefix)?;
    Network::open(config, Box::new(table)).context("failed to start the pod network")
}

fn join(run: &Run, prefix: NodePrefix, parts: &Collected) -> Result<Node> {
    let pods = match run.runtime {
        RuntimeKind::Standalone => Some(open_runtime(run)?),
        RuntimeKind::None => None,
    };
    let uplink = nix::net::if_::if_nametoindex(run.uplink.as_str())
        .with_context(|| format!("there is no interface {}", run.uplink))?;
    let datapath = Arc::clone(&parts.datapath);
    let alone = datapath.apps.is_stale();
    let (held, events) = (datapath.apps.followed(), datapath.take_events()?);
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let mut fleet = fleet::Node::new(run.node.clone(), boot_id, version, &held);
    fleet.describe(status(run, prefix));
    let epoch = EpochFile::load(&run.state_dir);
    fleet.follow_epoch(epoch.epoch().clone());
    let logs = pods.as_ref().map(|pods| FleetLogs {
        node: run.node.clone(),
        folder: pods.runtime.logs(),
    });
    let control = run.control.as_deref();
    let source = control.map(|url| Source::new(url, logs)).transpose()?;
    let routes = Routes::open(uplink).context("failed to open a routing socket")?;
    Ok(Node {
        fleet,
        source,
        datapath,
        events,
        pods,
        routes,
        state: Arc::clone(&parts.fleet),
        graced: None,
        gone: Gone::default(),
        drops: None,
        stale: Stale::new(alone, LEASE_DEFAULT),
        activators: Activators::load(&run.state_dir),
        epoch,
        probe: None,
    })
}

fn open_runtime(run: &Run) -> Result<Pods> {
    let config = RuntimeConfig {
        node: run.node.clone(),
        state_dir: run.state_dir.clone(),
        cgroup: run.cgroup.clone(),
        cni: run.cni.clone(),
        socket: run.socket.clone(),
        // Also finds the running binary after a newer one has replaced the file.
        agent: "/proc/self/exe".into(),
        log_flags: run.logs,
    };
    let (runtime, statuses) = Runtime::open(config).context("failed to recover the pods")?;
    Ok(Pods { runtime, statuses })
}

/// The node's status as reported to control.
fn status(run: &Run, prefix: NodePrefix) -> NodeStatus {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    NodeStatus {
        prefix: prefix.to_string(),
        address: run.address.to_string(),
        pods: run.pods_max,
        cpu_milli: u64::try_from(cpus).unwrap_or(1) * 1_000,
        memory_bytes: fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| memory_total(&text))
            .unwrap_or(0),
        labels: [("kubernetes.io/hostname".to_owned(), run.node.clone())].into(),
        runs_pods: run.runtime == RuntimeKind::Standalone,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// MemTotal of `/proc/meminfo`, in bytes.
fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1_024)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_another_machine_is_refused_by_its_flag() {
        check_address(Ipv6Addr::LOCALHOST).unwrap();
        let error = check_address("2001:db8::77".parse().unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("--address 2001:db8::77"));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(
            memory_total("MemTotal:       2 kB\nMemFree: 1 kB\n"),
            Some(2_048)
        );
        assert_eq!(memory_total("nothing"), None);
    }

    #[test]
    fn a_second_agent_on_one_state_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        assert!(
            lock(dir.path())
                .unwrap_err()
                .to_string()
                .contains("--state-dir")
        );
        drop(first);
        lock(dir.path()).unwrap();
    }

    #[test]
    fn the_lock_of_a_killed_agent_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                both.wait();
                lock(dir.path()).map(drop)
            });
            both.wait();
            // A child that the killed agent has forked holds the lock until it has called exec.
            std::thread::yield_now();
            drop(held);
            waiting.join().unwrap().unwrap();
        });
    }
}
