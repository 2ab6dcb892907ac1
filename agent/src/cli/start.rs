//! Starts a node's parts in the order of their dependencies, and stops them together.

mod control;
mod find;
mod join;
mod lock;
mod open;
mod signals;

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use dormouse_agent_datapath::{Pinned, SharedDatapath};
use dormouse_agent_inspect as inspect;
use dormouse_agent_pod::{Ipv4Range, Network, saved_config};
use dormouse_fleet::client::Target;
use dormouse_trust::Clients;
use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Run, RuntimeKind};
use crate::cni::{self, Admission, Refusal};
use crate::confinement::confine;
use crate::deny::message;
use crate::host_ports::HostPorts;
use crate::metrics::{self, Collected};
use crate::ndp::{Announcer, Changes};
use crate::node_status::NodeStatus;
use crate::own_node::{NoPods, Place};
use crate::readiness::Readiness;
use crate::services_sync::{self, Origin, ServicesSync};
use crate::source::fleet_state::FleetState;
use crate::source::kubernetes::{Kubernetes, KubernetesState, Writer};

use signals::Signals;

/// Time that open requests get to finish when the agent stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the node until SIGTERM or SIGINT.
pub(super) fn run(run: Run) -> Result<()> {
    // Before the threads start: each thread has rights of its own.
    confine(run.pods.runtime == RuntimeKind::Standalone)?;
    let lock = lock::lock(&run.state_dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(serve(run));
    runtime.shutdown_timeout(STOP_TIMEOUT);
    drop(lock);
    outcome
}

/// The listeners of the agent.
struct Listeners {
    metrics: TcpListener,
    /// The TLS of the metrics' listener; none: the node has not joined.
    metrics_tls: Option<Arc<ServerConfig>>,
    plugin: UnixListener,
    deny: UnixListener,
}

/// Control and the activators, as the node reaches them.
struct Control {
    /// None: there is no control.
    target: Option<Target>,
    /// The TLS of probes of activators; none: the node has not joined.
    probe: Option<Arc<ClientConfig>>,
}

/// A flag's value as it is written on the command line.
fn word(value: &impl ValueEnum) -> Option<String> {
    let value = value.to_possible_value()?;
    Some(value.get_name().to_owned())
}

/// The parts of a node that wires pods.
struct Pods {
    network: Arc<Network>,
    changes: Arc<Changes>,
}

async fn serve(run: Run) -> Result<()> {
    let mut signals = Signals::open()?;
    // Steps that can be refused come first, so that a node that does not start remains unchanged.
    let mut listeners = listen(&run).await?;
    let shutdown = CancellationToken::new();
    let (membership, target) = control::open(&run).await?;
    let mut control = Control {
        target,
        probe: None,
    };
    if let Some(membership) = &membership {
        control.probe = Some(membership.probe()?);
        listeners.metrics_tls = Some(membership.listener(Clients::Requested)?);
    }
    let renewal = membership.map(|membership| tokio::spawn(membership.renew(shutdown.clone())));
    let access = run.access()?;
    let state: Option<Arc<KubernetesState>> = access.as_ref().map(|_| Arc::default());
    let mut kubernetes = access
        .zip(state.clone())
        .map(|(access, state)| Kubernetes::open(access, &run.node.node, state));
    let found = find::find(&run, kubernetes.as_mut(), &listeners, &mut signals).await?;
    let Some(place) = found else {
        return Ok(());
    };
    log_start(&run, &place);
    let started = start(
        &run,
        place,
        (kubernetes, state),
        (listeners, control),
        &shutdown,
    );
    let mut tasks = started.await?;
    if let Some(renewal) = renewal {
        tasks.loops.spawn(renewal.map(drop));
    }
    info!(node = run.node.node, "running");
    stop(tasks, signals, &shutdown).await
}

async fn listen(run: &Run) -> Result<Listeners> {
    let metrics = metrics::bind(run.metrics)
        .await
        .with_context(|| format!("failed to listen on {} for metrics", run.metrics))?;
    let plugin = cni::bind(&run.socket)
        .with_context(|| format!("failed to listen on {}", run.socket.display()))?;
    let deny = message::socket(&run.socket);
    let deny =
        cni::bind(&deny).with_context(|| format!("failed to listen on {}", deny.display()))?;
    Ok(Listeners {
        metrics,
        metrics_tls: None,
        plugin,
        deny,
    })
}

fn log_start(run: &Run, place: &Place) {
    let pods = place.pods.as_ref();
    info!(
        node = run.node.node, uplink = run.node.uplink, network_profile = run.node.network_profile.name,
        prefix = pods.ok().map(|pods| pods.prefix.to_string()), delivered = pods.ok().map(|pods| pods.delivered.to_string()),
        prefix4 = pods.ok().and_then(|pods| pods.range4).map(Ipv4Range::cidr),
        address = place.address.map(|address| address.to_string()), address4 = place.address4.map(|address| address.to_string()),
        control = run.control, forwarding = word(&run.datapath.forwarding), runtime = word(&run.pods.runtime), state_dir = %run.state_dir.display(),
        socket = %run.socket.display(), cgroup = %run.datapath.cgroup.display(), metrics = %run.metrics,
        "starting"
    );
    if let Err(reason) = pods {
        warn!(%reason, "pods are not wired");
    }
}

/// The running parts of a node.
#[derive(Default)]
struct Tasks {
    /// They end only when the agent stops.
    servers: JoinSet<io::Result<()>>,
    /// They are waited for when it stops.
    loops: JoinSet<()>,
}

/// Starts all parts.
async fn start(
    run: &Run,
    place: Place,
    (kubernetes, state): (Option<Kubernetes>, Option<Arc<KubernetesState>>),
    (listeners, control): (Listeners, Control),
    shutdown: &CancellationToken,
) -> Result<Tasks> {
    if let Ok(ranges) = &place.pods {
        let config = open::network_config(run, ranges);
        config.check().context("failed to start the pod network")?;
    }
    let (programmed, in_force) = watch::channel(was_in_force(run));
    let datapath: SharedDatapath = Arc::new(open::datapath(run, &place)?);
    let denied = open::deny(run, listeners.deny, &datapath)?;
    let host_ports = open::host_ports(run)?;
    let pods = open_pods(run, &place, &datapath, &host_ports)?;
    open::forward(run, &place, &datapath)?;
    open::beside_proxy(&datapath)?;
    let collected = Collected {
        datapath,
        network: pods.as_ref().ok().map(|pods| Arc::clone(&pods.network)),
        fleet: Arc::new(FleetState::new(
            control.target.as_ref().map(Target::is_secured),
        )),
        kubernetes: state,
    };
    let (admitted, is_admitted) = watch::channel(false);
    let readiness = Readiness {
        network: collected.network.clone(),
        in_force: in_force.clone(),
    };
    let watched = (readiness.clone(), is_admitted);
    let status = kubernetes
        .as_ref()
        .map(|own| status(run, &place, own, &collected, watched));
    let programmed = (programmed, Arc::clone(&host_ports));
    let services = follow(run, &place, kubernetes, &collected, programmed, shutdown);
    let services = services.await?;
    let node = join::join(run, &place, &collected, control)?;
    let mut tasks = Tasks::default();
    let announcing = announce(run, &pods, &collected.datapath, shutdown);
    tasks.servers.spawn(announcing);
    tasks.loops.spawn(log_packets(&collected, shutdown.clone()));
    let parts = pods.map(|Pods { network, .. }| cni::Parts {
        network,
        host_ports: Some(host_ports),
        in_force,
    });
    let admission = Admission {
        conflist: run.conflist.conflist(&run.socket, &run.state_dir),
        admitted,
    };
    tasks.servers.spawn(serve_plugin(
        listeners.plugin,
        parts,
        admission,
        shutdown.clone(),
    ));
    let routes = inspect::services::route(services.as_ref().map(ServicesSync::services));
    tasks.servers.spawn(metrics::serve(
        metrics::incoming(listeners.metrics, listeners.metrics_tls.as_ref()),
        collected,
        (routes, run.readers()?),
        readiness,
        shutdown.clone(),
    ));
    tasks.servers.spawn(denied.run(shutdown.clone()));
    tasks.loops.spawn(node.run(shutdown.clone()));
    if let Some(services) = services {
        tasks.loops.spawn(services.run(shutdown.clone()));
    }
    if let Some(status) = status {
        tasks.loops.spawn(status.run(shutdown.clone()));
    }
    Ok(tasks)
}

/// The writer of the Node object. `watched`: whether the node is ready, and whether pods are admitted.
fn status(
    run: &Run,
    place: &Place,
    kubernetes: &Kubernetes,
    parts: &Collected,
    (readiness, admitted): (Readiness, watch::Receiver<bool>),
) -> NodeStatus {
    NodeStatus {
        node: run.node.node.clone(),
        own: kubernetes.own_node(),
        writer: Writer::new(kubernetes.access().clone()),
        readiness,
        admitted,
        installs: run.conflist.is_given(),
        datapath: Arc::clone(&parts.datapath),
        local: find::local(run, place),
    }
}

/// Logs the packets that `--log-packets` selects, if it is given, until `shutdown`.
fn log_packets(
    parts: &Collected,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let log = parts.datapath.packet_log();
    async move {
        let Some(log) = log else { return };
        tokio::select! {
            Err(error) = log.run() => warn!(%error, "packets are logged no longer"),
            () = shutdown.cancelled() => {}
        }
    }
}

/// Opens the pod network, if this node wires pods.
fn open_pods(
    run: &Run,
    place: &Place,
    datapath: &SharedDatapath,
    host_ports: &Arc<HostPorts>,
) -> Result<Result<Pods, NoPods>> {
    let ranges = match &place.pods {
        Ok(ranges) => ranges,
        Err(reason) => return Ok(Err(reason.clone())),
    };
    let (network, changes) = open::pods(run, ranges, datapath, host_ports)?;
    Ok(Ok(Pods { network, changes }))
}

/// Announces pods, and refreshes the uplink's programs when the uplink changes.
fn announce(
    run: &Run,
    pods: &Result<Pods, NoPods>,
    datapath: &SharedDatapath,
    shutdown: &CancellationToken,
) -> impl Future<Output = io::Result<()>> + Send + use<> {
    let pods = pods.as_ref().ok();
    let network = pods.map(|pods| Arc::clone(&pods.network));
    let pods = pods.map(|pods| (pods.network.config().prefix, Arc::clone(&pods.changes)));
    let announcer = Announcer::new(run.node.network_profile, &run.node.uplink, pods);
    announcer
        .on_renewal(refresh(datapath, network))
        .run(shutdown.clone())
}

/// Serves the plugin until `shutdown`, or turns its requests away on a node that wires no pods.
async fn serve_plugin(
    plugin: UnixListener,
    parts: Result<cni::Parts, NoPods>,
    admission: Admission,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let reason = match parts {
        Ok(parts) => return cni::serve(plugin, parts, admission, shutdown).await,
        Err(reason) => reason,
    };
    let (_refusal, refused) = watch::channel(Refusal {
        reason: reason.to_string(),
        is_temporary: false,
    });
    tokio::select! {
        ended = cni::turn_away(&plugin, refused) => ended,
        () = shutdown.cancelled() => Ok(()),
    }
}

/// Refreshes the uplink's programs, the link-layer address that the data path's neighbour advertisements contain, and the sysctls.
fn refresh(
    datapath: &SharedDatapath,
    network: Option<Arc<Network>>,
) -> impl FnMut() + Send + use<> {
    let datapath = Arc::clone(datapath);
    move || {
        let forwards = network.as_ref().map(|network| network.refresh_uplink());
        if let Some(Err(error)) = forwards {
            warn!(
                error = error.chain(),
                "the sysctls of the uplink were not set again: default routes that routers advertise may be missing"
            );
        }
        if let Err(error) = datapath.refresh_uplink() {
            warn!(%error, "the data path did not follow a change of the uplink: neighbour advertisements for pods may be missing, or carry an old link-layer address");
        }
    }
}

/// Whether Services are in force already, by a previous agent of this boot.
fn was_in_force(run: &Run) -> bool {
    saved_config::is_of_this_boot(&run.state_dir) && Pinned::open(&run.pins()).is_ok()
}

/// Starts to serve Services, if they have a source; `in_force` is set when all of them are.
async fn follow(
    run: &Run,
    place: &Place,
    kubernetes: Option<Kubernetes>,
    parts: &Collected,
    (in_force, host_ports): (watch::Sender<bool>, Arc<HostPorts>),
    shutdown: &CancellationToken,
) -> Result<Option<ServicesSync>> {
    let (origin, given) = match (run.source.manifests.clone(), kubernetes) {
        (Some(folder), _) => (Origin::Manifests(folder), None),
        (None, Some(kubernetes)) => (
            Origin::Kubernetes(Box::new(kubernetes)),
            Some(run.node.given()?),
        ),
        (None, None) => {
            in_force.send_replace(true);
            return Ok(None);
        }
    };
    let config = services_sync::Config {
        origin,
        given,
        node: run.node_facts(place)?,
        strictness: run.services.strictness(),
        apps: run.control.is_some(),
        health: run.services.health,
        in_force,
    };
    let datapath = Arc::clone(&parts.datapath);
    let sync = ServicesSync::open(config, host_ports, datapath, shutdown).await;
    sync.map(Some).context("failed to follow Services")
}

/// Returns after a signal, or when a server ended that must not end, once all parts have stopped or had time to.
async fn stop(mut tasks: Tasks, mut signals: Signals, shutdown: &CancellationToken) -> Result<()> {
    let outcome = tokio::select! {
        () = signals.next() => Ok(()),
        Some(ended) = tasks.servers.join_next() => {
            let ended = ended.map_err(io::Error::from).flatten();
            let cause = ended.as_ref().err().map(ToString::to_string);
            tracing::error!(cause, "a server task ended unexpectedly");
            ended
        }
    };
    shutdown.cancel();
    outcome?;
    let _ = tokio::time::timeout(STOP_TIMEOUT, async {
        while tasks.loops.join_next().await.is_some() {}
    })
    .await;
    let _ = tokio::time::timeout(STOP_TIMEOUT, async {
        while tasks.servers.join_next().await.is_some() {}
    })
    .await;
    Ok(())
}
