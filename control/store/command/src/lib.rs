//! The command line of the store: etcd's flags where the meaning is the same, and the server that they
//! describe.
#![forbid(unsafe_code)]

mod action;
pub mod compaction;
mod config;
mod durability;
mod duration;
mod environment;
mod flags;
mod foreign;
mod listen;
mod state;
mod trace;

use std::{io, path::PathBuf, pin::pin};

use dormouse_store::{
    OpenError, Store,
    server::{self, Listener, ServeError, TlsError},
};
use futures::future::{Either, select, try_join_all};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use action::{Action, ActionError, Command};
pub use config::{Config, ConfigError};
pub use durability::DurabilityFlags;
pub use environment::Environment;
pub use flags::{CompactionMode, Flags, TlsVersion};
pub use foreign::Foreign;
pub use listen::{Address, ListenUrl, ListenUrlError};

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
    for (flag, reason) in flags.foreign.ignored() {
        warn!(flag, reason, "a flag of etcd has no effect");
    }
    for (variable, reason) in flags.environment.ignored() {
        warn!(variable, reason, "a variable of etcd has no effect");
    }
    let config = Config::new(&flags)?;
    let parameters = config.tls.iter().map(|files| &files.parameters);
    for suite in parameters.flat_map(server::TlsParameters::unknown_suites) {
        warn!(suite, "the server does not have this cipher suite");
    }
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

async fn bind(urls: &[ListenUrl]) -> Result<Vec<Listener>, RunError> {
    let mut listeners = Vec::new();
    for url in urls {
        let listener = listen(url).await.map_err(|source| {
            let url = url.clone();
            RunError::Listen { url, source }
        })?;
        info!(%url, address = listener.address(), "listening");
        listeners.push(listener);
    }
    Ok(listeners)
}

async fn listen(url: &ListenUrl) -> io::Result<Listener> {
    match url.address() {
        Address::Tcp(host, port) => Ok(Listener::Tcp(
            TcpListener::bind((host.as_str(), *port)).await?,
        )),
        Address::Unix(path) => Listener::unix(path),
    }
}
