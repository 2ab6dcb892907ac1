//! The commands of `dormouse` that read and change objects through the Kubernetes API, control's own or a cluster's.

mod apply;
mod changes;
pub mod codes;
mod context;
mod delete;
mod events;
mod explain;
mod get;
mod logs;
mod node;
mod pipe;
mod request;
mod resource;
mod rollout;
mod table;
mod token;
mod wake;

use std::io;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use dormouse_command::{CommandError, Exit, screen_width};

pub(crate) use apply::unusable;
pub use context::Context;

/// The command that prints the runbook of an error's code.
pub const EXPLAIN: &str = "dormouse explain";

/// The flags of all commands that use the API server.
#[derive(Debug, Clone, Default, Args)]
pub struct Connection {
    /// URL of the API server, such as https://[::1]:6443; the default is the kubeconfig's.
    #[arg(long, env = "DORMOUSE_ENDPOINT", global = true)]
    pub endpoint: Option<String>,
    /// Path of the kubeconfig; the default is $KUBECONFIG, ~/.kube/config, or the administrator's of `dormouse up` on this host.
    #[arg(long, global = true)]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// Context of the kubeconfig; the default is its current context.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Namespace of the objects.
    #[arg(short, long, env = "DORMOUSE_NAMESPACE", global = true)]
    pub namespace: Option<String>,
}

/// The commands that use the API server.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List or watch apps, revisions, pods, nodes or events.
    Get(get::Arguments),
    /// Create or update the objects of a manifest.
    Apply(apply::Arguments),
    /// Delete objects by name or manifest.
    Delete(delete::Arguments),
    /// Explain an app, pod, node or wake, a reason, or the code of an error.
    Explain(explain::Arguments),
    /// List events in order of time.
    Events(events::Arguments),
    /// Print what an app's pods wrote to standard output and error.
    Logs(logs::Arguments),
    /// Follow, pause and undo the rollout of an app's template.
    #[command(subcommand)]
    Rollout(rollout::Arguments),
    /// Make join tokens, with which nodes get their certificates.
    #[command(subcommand)]
    Token(token::Arguments),
    /// Revoke a node.
    #[command(subcommand)]
    Node(node::Arguments),
    /// Show the stages of an app's wakes.
    #[command(subcommand)]
    Wake(wake::Arguments),
}

/// Runs a command; an error is printed to stderr.
pub async fn run(command: Command, connection: &Connection) -> ExitCode {
    let mut stdout = io::stdout();
    let width = screen_width(&stdout);
    let outcome = async {
        if let Command::Explain(arguments) = &command
            && let Some(exit) = explain::offline(arguments, &mut stdout, width)?
        {
            return Ok(exit);
        }
        let mut context = Context::connect(connection, Box::new(stdout)).await?;
        let only_reads = matches!(
            command,
            Command::Get(_) | Command::Events(_) | Command::Logs(_)
        );
        tokio::select! {
            ended = execute(command, &mut context) => ended,
            () = pipe::reader_gone(), if only_reads => Ok(Exit::Yes),
        }
    };
    match outcome.await {
        Ok(exit) => exit.into(),
        Err(error) => fail(&error),
    }
}

/// Prints the error of a command to stderr; returns its exit status.
pub fn fail(error: &CommandError) -> ExitCode {
    let stderr = io::stderr();
    error.print(&mut &stderr, Some(EXPLAIN), screen_width(&stderr));
    error.exit.into()
}

/// Runs a command in `context`.
pub async fn execute(command: Command, context: &mut Context) -> Result<Exit, CommandError> {
    match command {
        Command::Get(arguments) => get::run(arguments, context).await,
        Command::Apply(arguments) => apply::run(arguments, context).await,
        Command::Delete(arguments) => delete::run(arguments, context).await,
        Command::Explain(arguments) => explain::run(arguments, context).await,
        Command::Events(arguments) => events::run(arguments, context).await,
        Command::Logs(arguments) => logs::run(arguments, context).await,
        Command::Rollout(arguments) => rollout::run(arguments, context).await,
        Command::Token(arguments) => token::run(arguments, context).await,
        Command::Node(arguments) => node::run(arguments, context).await,
        Command::Wake(arguments) => wake::run(arguments, context).await,
    }
}
