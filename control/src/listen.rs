//! The listening sockets of the roles.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel accepts for a role meanwhile, at most net.core.somaxconn: when all agents connect again at once, the first packets
/// of further ones are dropped, and sent again seconds later.
const BACKLOG: u32 = 16_384;

/// Listens for a role.
pub(crate) async fn listen(address: SocketAddr, role: &str) -> Result<TcpListener> {
    let listener = bind(address).with_context(|| {
        format!(
            "failed to listen on {address} for the {role}: stop another control plane on it, or choose another address of this host"
        )
    })?;
    // The port is chosen here if the address has none.
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!(role, %address, "listening");
    Ok(listener)
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
