//! Clients of the store and of the scheduler.

use std::time::Duration;

use anyhow::{Context, Result};
use dormouse_apps::epoch;
use dormouse_cluster::{Channel, Client, channel};

/// Timeout of the first connection to the store.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval of connection attempts to the store.
const CONNECT_RETRY: Duration = Duration::from_millis(100);

/// A client of the store; waits until the store responds.
pub(crate) async fn connect(store: &str) -> Result<Client> {
    let client = Client::connect(store)
        .await
        .with_context(|| format!("`{store}` is not the URL of a store"))?;
    let response = async {
        while let Err(error) = client.range(epoch::EPOCH_KEY, 0).await {
            tracing::debug!(%error, store, "the store does not respond yet");
            tokio::time::sleep(CONNECT_RETRY).await;
        }
    };
    tokio::time::timeout(CONNECT_TIMEOUT, response)
        .await
        .with_context(|| format!("the store at {store} does not respond: is it running?"))?;
    Ok(client)
}

/// A channel that connects on first use and reconnects.
pub(super) fn lazy(url: &str) -> Result<Channel> {
    channel::remote(url).with_context(|| format!("`{url}` is not a URL"))
}
