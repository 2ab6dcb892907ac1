//! `dormouse events`: what happened, in order of time.

use clap::Args;
use serde_json::Value;

use super::{
    Context, Exit, Failure,
    context::{OBJECT, TABLE},
    noun::{EVENT, encoded},
    output::{self, Output},
    screen::Screen,
};

/// Which events to show.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse events
  dormouse events -A --types Warning
  dormouse events --for app/web")]
pub struct Arguments {
    /// Of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only of this type.
    #[arg(long, value_parser = ["Normal", "Warning"])]
    types: Option<String>,
    /// Only about this object, as NOUN/NAME.
    #[arg(long = "for", value_name = "OBJECT")]
    about: Option<String>,
    /// The form of the answer.
    #[arg(short, long)]
    output: Option<Output>,
    /// Without headings.
    #[arg(long)]
    no_headers: bool,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, Failure> {
    let namespace = Some(context.namespace.as_str()).filter(|_| !arguments.all_namespaces);
    let fields = encoded(&fields(&arguments));
    let path = format!(
        "{}?includeObject=Object&fieldSelector={fields}",
        EVENT.path(namespace)
    );
    if let Some(output @ (Output::Json | Output::Yaml)) = arguments.output {
        let mut list = context.get(&path, OBJECT, "list events").await?;
        if let Some(items) = list["items"].as_array_mut() {
            items.sort_by_key(last_seen);
        }
        output::value(&mut context.out, &list, output)?;
        return Ok(Exit::Yes);
    }
    let mut table = context.get(&path, TABLE, "list events").await?;
    if let Some(rows) = table["rows"].as_array_mut() {
        rows.sort_by_key(|row| last_seen(&row["object"]));
    }
    let wide = arguments.output == Some(Output::Wide);
    Screen::new(wide, arguments.all_namespaces, !arguments.no_headers)
        .show(&mut context.out, &table)?;
    Ok(Exit::Yes)
}

fn fields(arguments: &Arguments) -> String {
    let about = arguments
        .about
        .as_deref()
        .map(|about| about.split_once('/').unwrap_or(("", about)).1);
    let type_ = arguments
        .types
        .as_deref()
        .map(|type_| format!("type={type_}"));
    let name = about.map(|name| format!("involvedObject.name={name}"));
    type_.into_iter().chain(name).collect::<Vec<_>>().join(",")
}

/// When an event happened last; RFC 3339 in one time zone sorts as text.
fn last_seen(event: &Value) -> String {
    let times = [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/firstTimestamp",
    ];
    let found = times.iter().find_map(|path| event.pointer(path)?.as_str());
    found.unwrap_or_default().to_owned()
}
