//! The commands with which people see, understand and change what runs; they speak to any Kubernetes API that knows
//! apps, ours or a cluster's.

mod apply;
pub mod codes;
mod context;
mod delete;
mod events;
mod explain;
mod failure;
mod get;
mod noun;
mod output;
mod screen;
mod wake;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub use context::Context;
pub use failure::{Exit, Failure};

/// What every command that asks the server takes.
#[derive(Debug, Clone, Default, Args)]
pub struct Connection {
    /// The API to ask, such as http://[::1]:6443; without it, the kubeconfig's.
    #[arg(long, env = "DORMOUSE_ENDPOINT", global = true)]
    pub endpoint: Option<String>,
    /// The kubeconfig to read, instead of $KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true)]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// The kubeconfig's context to use, instead of its current one.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// The namespace to work in.
    #[arg(short, long, env = "DORMOUSE_NAMESPACE", global = true)]
    pub namespace: Option<String>,
}

/// The people's commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show apps, pods, nodes or events.
    Get(get::Arguments),
    /// Create or change what a manifest describes.
    Apply(apply::Arguments),
    /// Delete objects by name or manifest.
    Delete(delete::Arguments),
    /// Say why an app is as it is, or what a code means.
    Explain(explain::Arguments),
    /// Show what happened, in order of time.
    Events(events::Arguments),
    /// Show how an app's wakes went.
    #[command(subcommand)]
    Wake(wake::Arguments),
}

/// Runs a command and prints what went wrong, if anything did.
pub async fn run(command: Command, connection: &Connection) -> ExitCode {
    let mut stdout = anstream::stdout();
    let outcome = async {
        if let Command::Explain(arguments) = &command
            && let Some(exit) = explain::offline(arguments, &mut stdout)?
        {
            return Ok(exit);
        }
        let mut context = Context::connect(connection, Box::new(stdout)).await?;
        execute(command, &mut context).await
    };
    match outcome.await {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print(&mut anstream::stderr());
            failure.exit.into()
        }
    }
}

/// Runs a command in `context`.
pub async fn execute(command: Command, context: &mut Context) -> Result<Exit, Failure> {
    match command {
        Command::Get(arguments) => get::run(arguments, context).await,
        Command::Apply(arguments) => apply::run(arguments, context).await,
        Command::Delete(arguments) => delete::run(arguments, context).await,
        Command::Explain(arguments) => explain::run(arguments, context).await,
        Command::Events(arguments) => events::run(arguments, context).await,
        Command::Wake(arguments) => wake::run(arguments, context).await,
    }
}
