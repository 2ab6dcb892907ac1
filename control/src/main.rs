//! `dormouse`: the roles of the control plane and the client commands in one binary.
#![deny(unsafe_code)]

mod stdout;

use std::io::IsTerminal;
use std::pin::Pin;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dormouse::{activator, cli, members, scheduler, simulate, up};
use dormouse_allocator::Allocator;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The control plane for apps that scale to zero, and its client commands
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
    Client(cli::Command),
    /// Run the control plane: every role in one process
    Up(Box<up::Options>),
    /// Run only the activator
    #[command(long_about = activator::ABOUT, after_long_help = activator::EXAMPLE)]
    Activator(activator::Options),
    /// Run only the store
    Store(Box<dormouse_store_command::Command>),
    /// Run only the scheduler, or a shard of one
    #[command(args_conflicts_with_subcommands = true, after_long_help = members::EXAMPLE)]
    Scheduler {
        #[command(subcommand)]
        command: Option<SchedulerCommand>,
        #[command(flatten)]
        options: Box<scheduler::Options>,
    },
    /// Run a relay of a sharded scheduler
    #[command(long_about = members::RELAY, after_long_help = members::EXAMPLE)]
    Relay(members::RelayOptions),
}

#[derive(Subcommand)]
enum SchedulerCommand {
    /// Show which nodes pods would get, from files and without a cluster
    #[command(after_long_help = simulate::EXAMPLE)]
    Simulate(simulate::Arguments),
}

/// The future of a role.
type Role = Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;

fn main() -> ExitCode {
    dormouse_allocator::configure();
    // Keys and tokens are in memory: no core dump has them, and no process of the same user may read them.
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        eprintln!("dormouse: failed to forbid core dumps: {error}");
        return ExitCode::FAILURE;
    }
    run()
}

#[tokio::main]
async fn run() -> ExitCode {
    let Arguments { connection, verb } = Arguments::parse();
    let shutdown = CancellationToken::new();
    let token = shutdown.clone();
    let role: Role = match verb {
        Verb::Client(command) => {
            return match stdout::is_open() {
                Ok(()) => cli::run(command, &connection).await,
                Err(error) => cli::fail(&error),
            };
        }
        Verb::Up(options) => Box::pin(up::run(*options, token)),
        Verb::Activator(options) => Box::pin(activator::run(options, token)),
        Verb::Store(command) => Box::pin(up::run_store(*command, token)),
        Verb::Scheduler {
            command: Some(SchedulerCommand::Simulate(arguments)),
            ..
        } => return simulate::main(&arguments),
        Verb::Scheduler { options, .. } => Box::pin(scheduler::run(*options, connection, token)),
        Verb::Relay(options) => Box::pin(members::run_relay(options, connection, token)),
    };
    match serve(shutdown, role).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a role with logging until it ends; SIGINT and SIGTERM shut it down.
async fn serve(shutdown: CancellationToken, role: Role) -> anyhow::Result<()> {
    log();
    tokio::spawn(dormouse_allocator::purge());
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("shutting down");
        shutdown.cancel();
    });
    role.await
}

/// Logs text to a terminal, JSON otherwise; `DORMOUSE_LOG` is a filter in the syntax of `RUST_LOG`.
fn log() {
    let filter = EnvFilter::try_from_env("DORMOUSE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        // The module that logs is of interest to programs only.
        builder.with_target(false).init();
    } else {
        builder.json().init();
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
