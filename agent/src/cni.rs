//! The server for `dormouse-cni` on a Unix socket: one request and one reply per connection, a limited number at a time.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use dormouse_agent_netlink::monitor::{Monitor, PodLinks};
use dormouse_agent_pod::Network;
use dormouse_agent_pod::{POD_GROUP, names, saved_config};
use dormouse_agent_sys::retry;

use crate::host_ports::HostPorts;
use crate::install::Conflist;

mod answer;
pub(crate) mod connection;
mod threads;
mod turn_away;

pub use turn_away::{Refusal, turn_away};

/// Interval of the search for vanished pods and recorded deletions.
const RECONCILE_EVERY: Duration = Duration::from_mins(1);
/// Pause before another attempt to write the network configuration.
const INSTALL_PAUSE: Duration = Duration::from_secs(5);
/// Pause after a link was deleted: pods often go together, and one search finds them all.
const GONE_PAUSE: Duration = Duration::from_secs(1);

/// What requests of the plugin use.
#[derive(Clone)]
pub struct Parts {
    /// The pod network.
    pub network: Arc<Network>,
    /// The ports of the node that pods have; none: pods get none.
    pub host_ports: Option<Arc<HostPorts>>,
    /// Whether Services are in force.
    pub in_force: watch::Receiver<bool>,
}

/// Creates the plugin's socket, for root only; replaces a socket that has no server.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let is_served = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    retry::wait(retry::INSTANT, is_served, || unserved(path))?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn unserved(path: &Path) -> io::Result<()> {
    if UnixStream::connect(path).is_ok() {
        let text = format!("another agent serves {}", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    Ok(())
}

/// What happens once pods can be wired.
#[derive(Debug, Default)]
pub struct Admission {
    /// The network configuration to write, by which container runtimes find the plugin.
    pub conflist: Option<Conflist>,
    /// Set when it is written: from now on pods are wired.
    pub admitted: watch::Sender<bool>,
}

/// Serves until `shutdown`, then finishes the open requests. Blocking work (kernel, disk) runs on its own threads, never on
/// the runtime's. When Services are in force, pods are admitted.
pub async fn serve(
    listener: UnixListener,
    parts: Parts,
    admission: Admission,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let reconciler = tokio::spawn(reconcile(Arc::clone(&parts.network), shutdown.clone()));
    let admission = admit(parts.clone(), admission, shutdown.clone());
    tokio::try_join!(threads::serve(listener, parts, shutdown), admission)?;
    reconciler.await.map_err(io::Error::other)
}

/// Waits until Services are in force, and lets container runtimes start pods then, also while no agent runs.
async fn admit(parts: Parts, admission: Admission, shutdown: CancellationToken) -> io::Result<()> {
    let Parts {
        network,
        mut in_force,
        ..
    } = parts;
    tokio::select! {
        biased;
        done = in_force.wait_for(|in_force| *in_force) => if done.is_err() { return Ok(()) },
        () = shutdown.cancelled() => return Ok(()),
    }
    let saved = tokio::task::spawn_blocking(move || {
        if let Err(error) = saved_config::save(network.config()) {
            tracing::warn!(%error, "failed to save the network configuration: no pod can be added while no agent runs");
        }
    });
    saved.await?;
    if let Some(conflist) = admission.conflist {
        tokio::select! {
            () = install(conflist) => {}
            () = shutdown.cancelled() => return Ok(()),
        }
    }
    admission.admitted.send_replace(true);
    Ok(())
}

/// Writes the network configuration, again and again until it succeeds: meanwhile, pods that runtimes add are served.
async fn install(conflist: Conflist) {
    loop {
        let copy = conflist.clone();
        let written = tokio::task::spawn_blocking(move || copy.write()).await;
        match written {
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "the network configuration is not installed: container runtimes do not use this version of it");
            }
            Ok(Ok(())) => return,
            Err(error) => tracing::error!(%error, "the network configuration is not installed"),
        }
        tokio::time::sleep(INSTALL_PAUSE).await;
    }
}

async fn reconcile(network: Arc<Network>, shutdown: CancellationToken) {
    // The first tick is immediate: deletions can be recorded between the agent's start and its first connection.
    let mut ticks = tokio::time::interval(RECONCILE_EVERY);
    let pods = PodLinks {
        group: POD_GROUP,
        is_name: |name| names::suffix_of_link(name).is_some(),
    };
    let mut monitor = Monitor::open(pods)
        .inspect_err(|error| tracing::warn!(%error, "failed to watch links; vanished pods are found once a minute only"))
        .ok();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = link_changed(monitor.as_mut()) => {}
            () = shutdown.cancelled() => return,
        }
        let network = Arc::clone(&network);
        let done = tokio::task::spawn_blocking(move || network.reconcile()).await;
        if let Ok(Err(error)) = done {
            tracing::warn!(error = error.chain(), "failed to reconcile the node's pods");
        }
    }
}

/// Returns a moment after a link was deleted. A dropped call loses nothing: the next tick searches too.
async fn link_changed(monitor: Option<&mut Monitor>) {
    match monitor {
        Some(monitor) => monitor.changed().await,
        None => std::future::pending().await,
    }
    tokio::time::sleep(GONE_PAUSE).await;
}
