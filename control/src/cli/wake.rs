//! `dormouse wake timeline`: how a wake went, stage by stage, as numbers and as bars.

mod timeline;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{
    Context, Exit, Failure,
    codes::Code,
    context::OBJECT,
    noun::APP,
    output::{self, Output},
};

/// What to do with wakes.
#[derive(Debug, Clone, Subcommand)]
pub enum Arguments {
    /// Show the stages of an app's last wake.
    #[command(after_help = "Examples:
  dormouse wake timeline web
  dormouse wake timeline web --last 5
  dormouse wake timeline web -o json")]
    Timeline(Timeline),
}

/// Which wakes to show.
#[derive(Debug, Clone, Args)]
pub struct Timeline {
    /// NAME, app/NAME or NAMESPACE/NAME.
    app: String,
    /// How many wakes, the latest last.
    #[arg(long, default_value_t = 1)]
    last: usize,
    /// The form of the answer.
    #[arg(short, long)]
    output: Option<Output>,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, Failure> {
    let Arguments::Timeline(asked) = arguments;
    let (namespace, name) = match asked.app.split_once('/') {
        Some(("app" | "apps", name)) => (context.namespace.clone(), name.to_owned()),
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => (context.namespace.clone(), asked.app.clone()),
    };
    let path = format!("{}/wakes", APP.path_of(&namespace, &name));
    let wakes = context
        .get(
            &path,
            OBJECT,
            &format!("read the wakes of app {namespace}/{name}"),
        )
        .await?;
    if let Some(output @ (Output::Json | Output::Yaml)) = asked.output {
        output::value(&mut context.out, &wakes, output)?;
        return Ok(Exit::Yes);
    }
    let mut wakes: Vec<Value> = wakes["items"]
        .as_array()
        .or(wakes.as_array())
        .cloned()
        .unwrap_or_default();
    wakes.sort_by_key(timeline::began);
    if wakes.is_empty() {
        let message = format!("no wake of app {namespace}/{name} is remembered");
        return Err(Failure::new(
            Code::NoWake,
            Exit::No,
            message,
            "send it a request while it sleeps",
        ));
    }
    for wake in &wakes[wakes.len().saturating_sub(asked.last.max(1))..] {
        context.out.write_all(timeline::screen(wake).as_bytes())?;
    }
    Ok(Exit::Yes)
}
