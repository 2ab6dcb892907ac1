//! `dormouse events`: Events in order of time, and further ones as they occur.

use std::time::Duration;

use clap::Args;
use dormouse_command::{CommandError, Exit, ListFormat, OutputFormat, write_value};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Context;
use super::changes::{Changes, refuse_format, revision_of};
use super::codes::Code;
use super::resource::{self, EVENT, Resource, encoded};
use super::table::Table;
use crate::flags::past;

/// The flags of `events`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse events
  dormouse events -A --types Warning
  dormouse events app/web -w            those of an app, then every further one
  dormouse events --since 10m")]
pub struct Arguments {
    /// List only events about this object: RESOURCE NAME or RESOURCE/NAME.
    #[arg(num_args = 0..=2, value_name = "OBJECT", conflicts_with = "about")]
    object: Vec<String>,
    /// List events of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// List only events of this type.
    #[arg(long, value_parser = ["Normal", "Warning"])]
    types: Option<String>,
    /// The same, as in kubectl.
    #[arg(long = "for", value_name = "OBJECT")]
    about: Option<String>,
    /// List only events of this time, such as 30s, 10m or 2h.
    #[arg(long, value_name = "TIME", value_parser = past, allow_hyphen_values = true)]
    since: Option<Duration>,
    /// After listing, watch for further events.
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    format: ListFormat,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    let namespace = Some(context.namespace.as_str()).filter(|_| !arguments.all_namespaces);
    let fields = encoded(&fields(&arguments)?);
    if arguments.watch && !matches!(arguments.format.output, None | Some(OutputFormat::Wide)) {
        return Err(refuse_format("events"));
    }
    let path = format!(
        "{}?includeObject=Object&fieldSelector={fields}",
        EVENT.path(namespace)
    );
    if let Some(format @ (OutputFormat::Json | OutputFormat::Yaml)) = arguments.format.output {
        let mut list = context.get(&path, "list events").await?;
        if let Some(items) = list["items"].as_array_mut() {
            items.retain(|event| arguments.includes(event));
            items.sort_by_key(last_seen);
        }
        write_value(&mut context.out, &list, format)?;
        return Ok(Exit::Yes);
    }
    let mut reply = context.get_table(&path, "list events").await?;
    if let Some(rows) = reply["rows"].as_array_mut() {
        rows.retain(|row| arguments.includes(&row["object"]));
        rows.sort_by_key(|row| last_seen(&row["object"]));
    }
    let wide = arguments.format.output == Some(OutputFormat::Wide);
    let mut table = Table::new(
        wide,
        arguments.all_namespaces,
        !arguments.format.no_headers,
        context.width,
    );
    table.print(&mut context.out, &reply)?;
    if arguments.watch {
        let changes = Changes {
            path,
            revision: revision_of(&reply),
            // An event expires after an hour.
            deleted: false,
        };
        changes.follow(&mut table, context).await?;
    }
    Ok(Exit::Yes)
}

impl Arguments {
    /// Whether an event is of the time that is asked for.
    fn includes(&self, event: &Value) -> bool {
        let begin = self
            .since
            .and_then(|since| Timestamp::now().checked_sub(since).ok());
        begin.is_none_or(|begin| {
            let seen: Option<Timestamp> = last_seen(event).parse().ok();
            seen.is_some_and(|seen| seen >= begin)
        })
    }
}

/// The field selector. An object without its resource is one of any.
fn fields(arguments: &Arguments) -> Result<String, CommandError> {
    let (kind, name) = about(arguments)?.unzip();
    let kind = kind.flatten();
    let kind = kind.map(|kind| format!("involvedObject.kind={kind}"));
    let name = name.map(|name| format!("involvedObject.name={name}"));
    let type_ = arguments
        .types
        .as_deref()
        .map(|type_| format!("type={type_}"));
    let fields = type_.into_iter().chain(kind).chain(name);
    Ok(fields.collect::<Vec<_>>().join(","))
}

/// The kind, if it is given, and the name of the object whose events are asked for; none: all.
fn about(arguments: &Arguments) -> Result<Option<(Option<&'static str>, String)>, CommandError> {
    if let Some(about) = &arguments.about {
        let (resource, name) = about.split_once('/').unwrap_or(("", about));
        let resource = Some(resource).filter(|resource| !resource.is_empty());
        let resource = resource.map(Resource::parse).transpose()?;
        return Ok(Some((
            resource.map(|resource| resource.kind),
            name.to_owned(),
        )));
    }
    if arguments.object.is_empty() {
        return Ok(None);
    }
    let (resource, names) = resource::objects_of("events", &arguments.object)?;
    if let [name] = names.as_slice() {
        return Ok(Some((Some(resource.kind), name.clone())));
    }
    let singular = resource.singular;
    let message = format!("cannot list events: of which {singular}?");
    let hint = format!("dormouse events {singular}/NAME");
    Err(CommandError::new(Code::Kind, Exit::Usage, message, hint))
}

/// Time of an event's last occurrence; RFC 3339 in one time zone sorts as text.
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
