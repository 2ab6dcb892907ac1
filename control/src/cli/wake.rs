//! `dormouse wake timeline`: the stages of a wake, as numbers and as bars.

mod meaning;
mod timeline;

use clap::{Args, Subcommand};
use dormouse_command::{CommandError, Exit, OutputFormat, write_value};
use serde_json::Value;

use super::Context;
use super::codes::Code;
use super::resource::APP;
use crate::flags::number;

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
    #[arg(long, default_value_t = 1, value_parser = number::<usize>, allow_negative_numbers = true)]
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
    let wakes = list(&namespace, &name, context).await?;
    if let Some(format @ (OutputFormat::Json | OutputFormat::Yaml)) = timeline.output {
        write_value(&mut context.out, &wakes, format)?;
        return Ok(Exit::Yes);
    }
    let wakes = in_order(&wakes, &namespace, &name)?;
    for wake in &wakes[wakes.len().saturating_sub(timeline.last.max(1))..] {
        context
            .out
            .write_all(timeline::render(wake, context.width).as_bytes())?;
    }
    Ok(Exit::Yes)
}

/// The explanation of an app's last wake.
pub(super) async fn explanation(name: &str, context: &Context) -> Result<Value, CommandError> {
    let namespace = &context.namespace;
    let wakes = list(namespace, name, context).await?;
    let wakes = in_order(&wakes, namespace, name)?;
    Ok(wakes.last().map(meaning::explanation).unwrap_or_default())
}

async fn list(namespace: &str, name: &str, context: &Context) -> Result<Value, CommandError> {
    let path = format!("{}/wakes", APP.path_of(namespace, name));
    let action = format!("read the wakes of app {namespace}/{name}");
    context.get(&path, &action).await
}

/// The wakes of a list, the latest last; an error if there is none.
fn in_order(list: &Value, namespace: &str, name: &str) -> Result<Vec<Value>, CommandError> {
    let mut wakes: Vec<Value> = list["items"]
        .as_array()
        .or(list.as_array())
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
    Ok(wakes)
}
