//! One listener per port that any app uses; apps on the same port share it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::connection;
use crate::handle::Shared;
use crate::metrics::Reason;
use crate::refusal::FULL_HOUSE;

/// Connections that the kernel has completed and we have not accepted yet; the kernel caps it by somaxconn.
const BACKLOG: i32 = 4096;
/// Accepting fails when the process is out of descriptors: others need a moment to close theirs.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The ports that apps use.
#[derive(Default)]
pub(crate) struct Ports {
    held: Mutex<BTreeMap<u16, Port>>,
    /// Rings when a listener waits to be taken.
    pub(crate) opened: Notify,
}

struct Port {
    apps: usize,
    closed: CancellationToken,
    listener: Listener,
}

enum Listener {
    /// Something else listens on the port.
    Failed,
    Opened(StdListener),
    Taken,
}

impl Ports {
    /// Opens the port for its first app.
    pub(crate) fn hold(&self, port: u16) {
        let mut held = self.held.lock();
        let entry = held.entry(port).or_insert_with(|| {
            let listener = open_or_warn(port);
            Port {
                apps: 0,
                closed: CancellationToken::new(),
                listener,
            }
        });
        entry.apps += 1;
        drop(held);
        self.opened.notify_one();
    }

    /// Closes the port after its last app; connections that it accepted live on.
    pub(crate) fn release(&self, port: u16) {
        let mut held = self.held.lock();
        let Some(entry) = held.get_mut(&port) else {
            return;
        };
        entry.apps -= 1;
        if entry.apps == 0 {
            entry.closed.cancel();
            held.remove(&port);
        }
    }

    /// Listeners not yet accepted from; ports that failed are tried again.
    pub(crate) fn take_opened(&self, retry: bool) -> Vec<(u16, StdListener, CancellationToken)> {
        let mut taken = Vec::new();
        for (port, entry) in &mut *self.held.lock() {
            if retry && matches!(entry.listener, Listener::Failed) {
                entry.listener = open(*port).map_or(Listener::Failed, Listener::Opened);
            }
            if matches!(entry.listener, Listener::Opened(_))
                && let Listener::Opened(listener) =
                    std::mem::replace(&mut entry.listener, Listener::Taken)
            {
                taken.push((*port, listener, entry.closed.clone()));
            }
        }
        taken
    }
}

fn open_or_warn(port: u16) -> Listener {
    match open(port) {
        Ok(listener) => Listener::Opened(listener),
        Err(error) => {
            warn!(port, %error, "failed to listen for apps; trying again each second");
            Listener::Failed
        }
    }
}

fn open(port: u16) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts on one port until its last app is gone or the activator shuts down.
pub(crate) async fn accept(
    shared: Arc<Shared>,
    port: u16,
    listener: StdListener,
    closed: CancellationToken,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            warn!(port, %error, "failed to accept for apps");
            return;
        }
    };
    info!(port, "accepting for apps");
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closed.cancelled() => return,
            () = shared.draining.cancelled() => return,
        };
        match accepted {
            Ok((stream, SocketAddr::V6(client))) => admit(&shared, stream, client),
            Ok((_, SocketAddr::V4(_))) => {}
            Err(error) => {
                warn!(port, %error, "failed to accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, stream: TcpStream, client: SocketAddrV6) {
    let Ok(permit) = Arc::clone(&shared.connections).try_acquire_owned() else {
        shared.core.metrics.refused(Reason::connections);
        // Best effort: whoever cannot take it at once gets a closed connection.
        drop(stream.try_write(FULL_HOUSE));
        return;
    };
    let serve = connection::serve(Arc::clone(shared), stream, client);
    shared.tracker.spawn(async move {
        serve.await;
        drop(permit);
    });
}
