//! Serves `dormouse-cni` over a Unix socket: one request, one reply, one connection, a bounded number at a time.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::pod::Network;
use crate::pod::monitor::Monitor;
use crate::{held, offline};

mod answer;
pub(crate) mod connection;

/// Requests served at one time; more wait in the socket's own queue, first come, first served.
const SERVED_MAX: u32 = 128;
/// How often vanished pods and noted deletions are looked for.
const RECONCILE_EVERY: Duration = Duration::from_mins(1);
/// A pause after a link changed: pods often go together, and one look is enough for all.
const GONE_PAUSE: Duration = Duration::from_secs(1);
/// A pause after an error of accept, such as too many open files, so that it does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Makes the socket that the plugin connects to, for root only; takes the place of one that nobody serves any more.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let is_served = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    held::wait(held::INSTANT, is_served, || unserved(path))?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn unserved(path: &Path) -> io::Result<()> {
    if StdUnixStream::connect(path).is_ok() {
        let text = format!("another agent serves {}", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    Ok(())
}

/// Serves until `shutdown`, then finishes what has begun. Each request has a thread: the kernel's and the disk's
/// answers are waited for there, never on the runtime.
pub async fn serve(
    listener: UnixListener,
    network: Arc<Network>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    if let Err(error) = offline::remember(network.config()) {
        tracing::warn!(%error, "no pod can be wired while the agent is down");
    }
    let reconciler = tokio::spawn(reconcile(Arc::clone(&network), shutdown.clone()));
    let slots = Arc::new(Semaphore::new(
        usize::try_from(SERVED_MAX).map_err(io::Error::other)?,
    ));
    while let Some(slot) = slot(&slots, &shutdown).await {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let network = Arc::clone(&network);
                tokio::task::spawn_blocking(move || {
                    serve_one(stream, &network);
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a request of the plugin");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let _all = slots
        .acquire_many(SERVED_MAX)
        .await
        .map_err(io::Error::other)?;
    reconciler.await.map_err(io::Error::other)
}

async fn slot(
    slots: &Arc<Semaphore>,
    shutdown: &CancellationToken,
) -> Option<tokio::sync::OwnedSemaphorePermit> {
    tokio::select! {
        slot = Arc::clone(slots).acquire_owned() => slot.ok(),
        () = shutdown.cancelled() => None,
    }
}

fn serve_one(stream: UnixStream, network: &Network) {
    let served = stream.into_std().and_then(|stream| {
        stream.set_nonblocking(false)?;
        connection::serve(&stream, network)
    });
    if let Err(error) = served {
        tracing::warn!(%error, "a request of the plugin was not answered");
    }
}

async fn reconcile(network: Arc<Network>, shutdown: CancellationToken) {
    // The first tick is at once: deletions may have been noted between the agent's look and its first connection.
    let mut ticks = tokio::time::interval(RECONCILE_EVERY);
    let mut monitor = Monitor::open()
        .inspect_err(|error| tracing::warn!(%error, "vanished pods are noticed late"))
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

/// Returns a moment after a link changed. A call that is given up loses nothing: the next tick looks too.
async fn link_changed(monitor: Option<&mut Monitor>) {
    match monitor {
        Some(monitor) => monitor.changed().await,
        None => std::future::pending().await,
    }
    tokio::time::sleep(GONE_PAUSE).await;
}
