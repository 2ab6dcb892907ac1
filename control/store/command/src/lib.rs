//! The command line of the store: etcd's flags where the meaning is the same, and the server that they
//! describe.
#![forbid(unsafe_code)]

mod action;
pub mod compaction;
mod config;
mod durability;
mod duration;
mod flags;
mod listen;
mod state;
mod trace;

use std::{io, path::PathBuf, pin::pin};

use dormouse_store::{
    OpenError, Store,
    server::{self, ServeError, TlsError},
};
use futures::future::{Either, select, try_join_all};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use action::{Action, ActionError, Command};
pub use config::{Config, ConfigError};
pub use durability::DurabilityFlags;
pub use flags::Flags;
pub use listen::{ListenUrl, ListenUrlError};

/// An error that ends the command.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Flags that contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The files of TLS.
    #[error("failed to set up TLS")]
    Tls(#[from] TlsError),
    /// An address is taken or is none of this host.
    #[error("failed to listen on {url}")]
    Listen {
        /// The URL of a flag.
        url: ListenUrl,
        /// The cause.
        source: io::Error,
    },
    /// The file of the trace.
    #[error("failed to open the trace {}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The data directory is refused.
    #[error("failed to open the data directory `{}`", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: OpenError,
    },
    /// The thread that opens the data directory ended early.
    #[error("failed to open the data directory")]
    Opening(#[from] tokio::task::JoinError),
    /// The end of the run could not be recorded.
    #[error(transparent)]
    Close(#[from] dormouse_store::Error),
    /// The server failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Runs the store that the flags describe until `shutdown` is cancelled.
pub async fn run(flags: Flags, shutdown: CancellationToken) -> Result<(), RunError> {
    for flag in flags.ignored.given() {
        info!(flag, "the flag has no effect");
    }
    let config = Config::new(&flags)?;
    let store = state::open(config.limits, &flags).await?;
    serve(config, store.clone(), shutdown).await?;
    Ok(store.close()?)
}

/// Serves a store as the flags describe until `shutdown` is cancelled.
async fn serve(config: Config, store: Store, shutdown: CancellationToken) -> Result<(), RunError> {
    let tls = config.tls.as_ref().map(server::Tls::load).transpose()?;
    let options = server::Options {
        tls,
        trace: trace(config.trace)?,
        ..config.server
    };
    let clients = bind(&config.client_urls).await?;
    let metrics = bind(&config.metrics_urls).await?;
    if let Some(policy) = config.compaction {
        tokio::spawn(compaction::run(store.clone(), policy, shutdown.clone()));
    }
    let metrics = metrics
        .into_iter()
        .map(|listener| server::serve_http(listener, store.clone(), shutdown.clone()));
    let metrics = pin!(try_join_all(metrics));
    let clients = pin!(server::serve_with(
        clients,
        store.clone(),
        options,
        shutdown
    ));
    match select(clients, metrics).await {
        Either::Left((served, _)) => Ok(served?),
        // There may be no listener for metrics.
        Either::Right((Ok(_), clients)) => Ok(clients.await?),
        Either::Right((Err(error), _)) => Err(error.into()),
    }
}

fn trace(path: Option<PathBuf>) -> Result<Option<server::Trace>, RunError> {
    let Some(path) = path else {
        return Ok(None);
    };
    match trace::open(&path) {
        Ok(trace) => Ok(Some(trace)),
        Err(source) => Err(RunError::Trace { path, source }),
    }
}

async fn bind(urls: &[ListenUrl]) -> Result<Vec<TcpListener>, RunError> {
    let mut listeners = Vec::new();
    for url in urls {
        let listen = |source| {
            let url = url.clone();
            RunError::Listen { url, source }
        };
        let listener = TcpListener::bind((url.host(), url.port()))
            .await
            .map_err(listen)?;
        info!(address = %listener.local_addr().map_err(listen)?, %url, "listening");
        listeners.push(listener);
    }
    Ok(listeners)
}
