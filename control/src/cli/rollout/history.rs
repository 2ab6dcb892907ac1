//! `dormouse rollout history`: the revisions of an app.

use clap::Args;
use dormouse_cluster::{App, Revision, history};
use dormouse_command::{Columns, CommandError, Exit, OutputFormat, write_value};
use serde_json::{Value, json};

use super::{Target, before, decoded, read};
use crate::cli::Context;
use crate::cli::codes::Code;
use crate::cli::resource::{REVISION, encoded};
use crate::flags::number;

/// The flags of `rollout history`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Show the template of this revision.
    #[arg(long, value_name = "NUMBER", value_parser = number::<u32>, allow_negative_numbers = true)]
    revision: Option<u32>,
    /// Output format.
    #[arg(short, long)]
    output: Option<OutputFormat>,
}

pub(super) async fn run(
    arguments: &Arguments,
    context: &mut Context,
) -> Result<Exit, CommandError> {
    let name = arguments.target.name()?;
    let app = read(&name, context).await?;
    if let Some(number) = arguments.revision {
        let revision = read_one(&name, &app, number, context).await?;
        let format = arguments.output.unwrap_or(OutputFormat::Yaml);
        write_value(&mut context.out, &json!(revision), format)?;
        return Ok(Exit::Yes);
    }
    let all = list(&name, &app, context).await?;
    if let Some(format @ (OutputFormat::Json | OutputFormat::Yaml)) = arguments.output {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": all});
        write_value(&mut context.out, &list, format)?;
        return Ok(Exit::Yes);
    }
    let headings = ["REVISION", "STATE", "IMAGE", "COMMAND"].map(str::to_owned);
    let rows = all.iter().map(|revision| row(revision, &app));
    let lines: Vec<Vec<String>> = [headings.to_vec()].into_iter().chain(rows).collect();
    Columns::for_width(context.width).write_all(&mut context.out, &lines)?;
    Ok(Exit::Yes)
}

/// One revision of an app.
pub(super) async fn read_one(
    name: &str,
    app: &App,
    number: u32,
    context: &Context,
) -> Result<Revision, CommandError> {
    let all = list(name, app, context).await?;
    let found = all.into_iter().find(|one| one.spec.revision == number);
    found.ok_or_else(|| {
        let message = format!("app {}/{name} has no revision {number}", context.namespace);
        let hint = format!("dormouse rollout history app {name}");
        CommandError::new(Code::NoRevision, Exit::NotFound, message, hint)
    })
}

/// The revisions of an app in the order of their numbers. One that never had a second template has no objects: its own template is
/// revision 1.
pub(super) async fn list(
    name: &str,
    app: &App,
    context: &Context,
) -> Result<Vec<Revision>, CommandError> {
    let namespace = context.namespace.as_str();
    let selector = encoded(&format!("dormouse.dev/app={name}"));
    let path = format!(
        "{}?labelSelector={selector}",
        REVISION.path(Some(namespace))
    );
    let action = format!("list the revisions of app {namespace}/{name}");
    let reply = context.get(&path, &action).await?;
    let items: Vec<Value> = reply["items"].as_array().cloned().unwrap_or_default();
    let all: Result<Vec<Revision>, CommandError> = items.into_iter().map(decoded).collect();
    let mut all = all?;
    all.sort_by_key(|revision| revision.spec.revision);
    if all.is_empty() {
        all.push(history::revision(app, app.revision_number()));
    }
    Ok(all)
}

fn row(revision: &Revision, app: &App) -> Vec<String> {
    let spec = &revision.spec;
    let status = app.status.clone().unwrap_or_default();
    let is_current = spec.revision == app.revision_number();
    let is_ready = status.ready_revision == Some(spec.revision);
    let was_ready = status.earlier_ready_revisions.contains(&spec.revision);
    let has_failed = status.failed_revisions.contains(&spec.revision);
    let state = match (is_current, is_ready) {
        (true, true) if history::fails(&status, spec.revision) => "current, failed",
        (true, true) => "current",
        (true, false) => "current, not ready yet",
        (false, _) if has_failed => "failed",
        (false, true) => "serves",
        (false, false) if was_ready => "was ready",
        (false, false) => "",
    };
    let undo = Some("(undo)").filter(|_| before(app) == Some(spec.revision));
    let state = [Some(state).filter(|state| !state.is_empty()), undo];
    let state: Vec<&str> = state.into_iter().flatten().collect();
    let container = &spec.template.container;
    vec![
        spec.revision.to_string(),
        state.join(" "),
        container
            .image
            .clone()
            .unwrap_or_else(|| "<none>".to_owned()),
        container.command.clone().unwrap_or_default().join(" "),
    ]
}
