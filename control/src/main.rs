//! `dormouse`: control's roles and the people's commands in one binary.
#![forbid(unsafe_code)]

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dormouse::{cli, up};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// The control plane of mostly sleeping clusters, and the commands to see and understand it.
#[derive(Parser)]
#[command(name = "dormouse", version, propagate_version = true)]
struct Arguments {
    #[command(flatten)]
    connection: cli::Connection,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[command(flatten)]
    People(cli::Command),
    /// Run control: every role in one process
    Up(up::Options),
    /// Run the store alone
    Store {
        /// Where to listen
        #[arg(long, default_value = "[::1]:2379")]
        listen: SocketAddr,
    },
    /// Run the scheduler alone
    Scheduler {
        /// Where to listen
        #[arg(long, default_value = "[::1]:10259")]
        listen: SocketAddr,
        /// The store's URL
        #[arg(long, default_value = "http://[::1]:2379", env = "DORMOUSE_STORE")]
        store: String,
    },
}

/// A role, until it ends.
type Role = Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { connection, verb } = Arguments::parse();
    let shutdown = CancellationToken::new();
    let asked = shutdown.clone();
    let role: Role = match verb {
        Verb::People(command) => return cli::run(command, &connection).await,
        Verb::Up(options) => Box::pin(up::run(options, asked)),
        Verb::Store { listen } => Box::pin(up::run_store(listen, asked)),
        Verb::Scheduler { listen, store } => Box::pin(up::run_scheduler(listen, store, asked)),
    };
    match serve(shutdown, role).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a role with its log, until it ends or SIGINT or SIGTERM asks it to.
async fn serve(shutdown: CancellationToken, role: Role) -> anyhow::Result<()> {
    log();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("asked to end");
        shutdown.cancel();
    });
    role.await
}

/// Text for people, JSON for collectors; `DORMOUSE_LOG` filters as `RUST_LOG` does.
fn log() {
    let filter = EnvFilter::try_from_env("DORMOUSE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        builder.init();
    } else {
        builder.json().init();
    }
}
