//! `dormouse wake timeline`: the stages of a wake, as numbers and as bars.

mod timeline;

use clap::{Args, Subcommand};
use dormouse_command::{CommandError, Exit, OutputFormat, screen_width, write_value};
use serde_json::Value;

use super::Context;
use super::codes::Code;
use super::resource::APP;

/// The commands of `wake`.
#[derive(Debug, Clone, Subcommand)]
pub enum Arguments {
    /// Show the stages of an app's last wake.
    #[command(after_help = "Examples:
  dormouse wake timeline web
  dormouse wake timeline web --last 5
  dormouse wake timeline web -o json")]
    Timeline(Timeline),
}

/// The flags of `wake timeline`.
#[derive(Debug, Clone, Args)]
pub struct Timeline {
    /// NAME, app/NAME or NAMESPACE/NAME.
    app: String,
    /// Number of wakes, the latest last.
    #[arg(long, default_value_t = 1)]
    last: usize,
    /// Output format.
    #[arg(short, long)]
    output: Option<OutputFormat>,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    let Arguments::Timeline(timeline) = arguments;
    let (namespace, name) = match timeline.app.split_once('/') {
        Some(("app" | "apps", name)) => (context.namespace.clone(), name.to_owned()),
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => (context.namespace.clone(), timeline.app.clone()),
    };
    let path = format!("{}/wakes", APP.path_of(&namespace, &name));
    let action = format!("read the wakes of app {namespace}/{name}");
    let wakes = context.get(&path, &action).await?;
    if let Some(format @ (OutputFormat::Json | OutputFormat::Yaml)) = timeline.output {
        write_value(&mut context.out, &wakes, format)?;
        return Ok(Exit::Yes);
    }
    let mut wakes: Vec<Value> = wakes["items"]
        .as_array()
        .or(wakes.as_array())
        .cloned()
        .unwrap_or_default();
    wakes.sort_by_key(timeline::start_ns);
    if wakes.is_empty() {
        let message = format!("no wake of app {namespace}/{name} is recorded");
        return Err(CommandError::new(
            Code::NoWake,
            Exit::No,
            message,
            "send it a request while it sleeps",
        ));
    }
    for wake in &wakes[wakes.len().saturating_sub(timeline.last.max(1))..] {
        context
            .out
            .write_all(timeline::render(wake, screen_width()).as_bytes())?;
    }
    Ok(Exit::Yes)
}
