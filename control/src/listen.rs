//! The listening sockets of the roles.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::net::TcpListener;

/// Listens for a role.
pub(crate) async fn listen(address: SocketAddr, role: &str) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!(
            "failed to listen on {address} for the {role}: stop another control plane on it, or choose another address of this host"
        )
    })?;
    // The port is chosen here if the address has none.
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!(role, %address, "listening");
    Ok(listener)
}
