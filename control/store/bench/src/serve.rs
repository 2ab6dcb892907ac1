//! The measured store, and what both servers have in common: the listener, the line with the address, and the end.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use dormouse_store::durable::{DataDir, Policy};
use dormouse_store::{Limits, Store, server};
use dormouse_wal::Durability;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::certificates;
use crate::row::print;

/// The rows hold up to two million values with their history: far more than etcd's default quota.
const QUOTA_BYTES: u64 = 16 << 30;

/// Arguments of the store's process.
#[derive(Args)]
pub(crate) struct Options {
    /// Worker threads
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: usize,
    /// Keep the state in this directory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The durability of all keys: none, buffered, os or fsync
    #[arg(long, default_value = "os")]
    durability: Durability,
    /// Speak TLS with the certificates of this folder
    #[arg(long, value_name = "DIR")]
    certificates: Option<PathBuf>,
}

impl Options {
    fn store(&self) -> Result<Store> {
        let limits = Limits {
            quota_bytes: QUOTA_BYTES,
            ..Limits::default()
        };
        let Some(path) = self.data_dir.clone() else {
            return Ok(Store::with_limits(limits));
        };
        let policy = Policy {
            default: self.durability,
            prefixes: Vec::new(),
        };
        Store::open(limits, &DataDir { path, policy }).context("failed to open the store")
    }
}

/// Serves the store.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let store = options.store()?;
    let mut registry = Registry::default();
    store.register(&mut registry);
    let listener = listen().await?;
    let tls = options.certificates.as_deref().map(certificates::server);
    let options = server::Options {
        tls: tls.transpose()?,
        ..server::Options::default()
    };
    server::serve_with(vec![listener], store, options, until_input_ends(registry))
        .await
        .context("the store failed")
}

/// A listener on a free port, whose address is printed as the first line of standard output.
pub(crate) async fn listen() -> Result<TcpListener> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = TcpListener::bind(any)
        .await
        .context("failed to listen on the loopback address")?;
    print(&listener.local_addr()?.to_string())?;
    Ok(listener)
}

/// Cancelled when standard input ends: the process that started this one has ended, too. Before, each line of it asks for the
/// metrics.
pub(crate) fn until_input_ends(registry: Registry) -> CancellationToken {
    let token = CancellationToken::new();
    let guard = token.clone().drop_guard();
    tokio::spawn(async move {
        let _guard = guard;
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(_)) = lines.next_line().await {
            let mut metrics = String::new();
            if encode(&mut metrics, &registry).is_err() || print(metrics.trim_end()).is_err() {
                return;
            }
        }
    });
    token
}
