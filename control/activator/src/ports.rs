//! The listening ports: one listener per port, shared by all apps that use it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Limit of connections that wait to be accepted; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The ports that apps use.
pub(crate) struct Ports {
    /// Limit of listeners.
    max: usize,
    open: Mutex<BTreeMap<u16, Port>>,
    /// Notified when [`Ports::take_opened`] has a new listener.
    pub(crate) opened: Notify,
}

struct Port {
    closed: CancellationToken,
    listener: Listener,
}

enum Listener {
    /// Another process listens on the port, or the limit of listeners is reached.
    Failed,
    Opened(TcpListener),
    /// An accept loop has it.
    Taken,
}

/// A new listener, for an accept loop.
pub(crate) struct OpenedPort {
    pub(crate) port: u16,
    pub(crate) listener: TcpListener,
    /// Cancelled when no app uses the port any more.
    pub(crate) closed: CancellationToken,
}

impl Ports {
    /// No port yet, and at most `max`.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            open: Mutex::default(),
            opened: Notify::new(),
        }
    }

    /// Opens the ports that are new, and closes those that are no longer used. Accepted connections stay open.
    pub(crate) fn set(&self, ports: &BTreeSet<u16>) {
        let mut open = self.open.lock();
        open.retain(|port, entry| {
            let stays = ports.contains(port);
            if !stays {
                entry.closed.cancel();
            }
            stays
        });
        let mut left = self.max.saturating_sub(listeners(&open));
        for port in ports {
            open.entry(*port).or_insert_with(|| Port {
                closed: CancellationToken::new(),
                listener: listen_or_warn(*port, &mut left),
            });
        }
        drop(open);
        self.opened.notify_one();
    }

    /// New listeners. With `retry`, ports that could not be opened are tried again.
    pub(crate) fn take_opened(&self, retry: bool) -> Vec<OpenedPort> {
        let mut taken = Vec::new();
        let mut open = self.open.lock();
        let mut left = self.max.saturating_sub(listeners(&open));
        for (port, entry) in &mut *open {
            if retry && matches!(entry.listener, Listener::Failed) {
                let opened = listen(*port, &mut left);
                entry.listener = opened.map_or(Listener::Failed, Listener::Opened);
            }
            if matches!(entry.listener, Listener::Opened(_))
                && let Listener::Opened(listener) =
                    std::mem::replace(&mut entry.listener, Listener::Taken)
            {
                taken.push(OpenedPort {
                    port: *port,
                    listener,
                    closed: entry.closed.clone(),
                });
            }
        }
        taken
    }
}

/// The number of open listeners.
fn listeners(ports: &BTreeMap<u16, Port>) -> usize {
    let open = |port: &&Port| !matches!(port.listener, Listener::Failed);
    ports.values().filter(open).count()
}

fn listen_or_warn(port: u16, left: &mut usize) -> Listener {
    match listen(port, left) {
        Ok(listener) => Listener::Opened(listener),
        Err(error) => {
            warn!(port, %error, "failed to listen for apps; retrying every second");
            Listener::Failed
        }
    }
}

/// Listens on a port, if there are listeners `left`.
fn listen(port: u16, left: &mut usize) -> io::Result<TcpListener> {
    let rest = left.checked_sub(1);
    let rest = rest
        .ok_or_else(|| io::Error::other("too many ports: raise the limit of file descriptors"))?;
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    socket.listen(BACKLOG)?;
    *left = rest;
    Ok(socket.into())
}
