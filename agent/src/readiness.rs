//! The readiness of the node for pods: Services are in force, and the pod network works.

use std::sync::Arc;

use dormouse_agent_pod::Network;
use tokio::sync::watch;

/// What decides whether the node is ready.
#[derive(Clone)]
pub struct Readiness {
    /// The pod network; none, if another plugin wires the pods.
    pub network: Option<Arc<Network>>,
    /// Whether Services are in force.
    pub in_force: watch::Receiver<bool>,
}

impl Readiness {
    /// Fails with the reason while the node is not ready.
    pub async fn check(&self) -> Result<(), String> {
        if !*self.in_force.borrow() {
            return Err("Services are not in force yet".to_owned());
        }
        let Some(network) = self.network.clone() else {
            return Ok(());
        };
        let status = tokio::task::spawn_blocking(move || network.status()).await;
        let status = status.map_err(|error| error.to_string())?;
        status.map_err(|error| error.chain())
    }
}
