//! `dormouse get`: objects as a table, as JSON, YAML or names, and their changes.

use clap::Args;
use dormouse_command::{CommandError, Exit, ListFormat, OutputFormat, write_value};
use serde_json::{Value, json};

use super::Context;
use super::changes::{Changes, refuse_format, revision_of};
use super::codes::Code;
use super::resource::{self, Resource, encoded};
use super::table::Table;

/// The flags of `get`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse get apps                     all apps of the namespace
  dormouse get pods -A -o wide          all pods, with node and address
  dormouse get app web -o yaml          one app, all fields
  dormouse get apps -w                  all apps, then every change")]
pub struct Arguments {
    /// RESOURCE, RESOURCE NAME... or RESOURCE/NAME...; resources: app, revision, pod, node,
    /// namespace, service, endpointslice, event, configmap.
    #[arg(required = true, value_name = "RESOURCE")]
    objects: Vec<String>,
    /// List objects of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// List only objects with these labels, such as app=web,tier!=back.
    #[arg(short = 'l', long, default_value = "")]
    selector: String,
    /// List only objects with these fields, such as spec.nodeName=node-1.
    #[arg(long, default_value = "")]
    field_selector: String,
    /// After listing, watch for changes: of all objects that match, or of one.
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    format: ListFormat,
}

/// The objects to read: those that are named, or all that match the selectors.
struct Selection {
    resource: Resource,
    names: Vec<String>,
    /// The path of the list, with the selectors.
    list_path: String,
    /// Namespace of the named objects.
    namespace: String,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    let (resource, names) = resource::objects(&arguments.objects)?;
    let selection = Selection {
        resource,
        list_path: list_path(resource, &names, &arguments, context),
        names,
        namespace: context.namespace.clone(),
    };
    if arguments.watch {
        selection.check_watch(arguments.format.output)?;
    }
    match arguments.format.output {
        Some(format @ (OutputFormat::Json | OutputFormat::Yaml)) => {
            let value = selection.objects(context).await?;
            write_value(&mut context.out, &value, format)?;
        }
        Some(OutputFormat::Name) => {
            let value = selection.objects(context).await?;
            print_names(&selection, &value, context)?;
        }
        Some(OutputFormat::Wide) | None => print_tables(selection, &arguments, context).await?,
    }
    Ok(Exit::Yes)
}

impl Selection {
    /// Whether changes of these objects can be printed.
    fn check_watch(&self, format: Option<OutputFormat>) -> Result<(), CommandError> {
        let command = format!("get {}s", self.resource.singular);
        if !matches!(format, None | Some(OutputFormat::Wide)) {
            return Err(refuse_format(&command));
        }
        if self.names.len() > 1 {
            let message = "cannot watch several objects by name: watch one, or all";
            let hint = format!("dormouse {command} -w");
            return Err(CommandError::new(Code::Kind, Exit::Usage, message, hint));
        }
        Ok(())
    }

    /// One object, or a list.
    async fn objects(&self, context: &Context) -> Result<Value, CommandError> {
        match self.names.as_slice() {
            [] => {
                let action = format!("list {}s", self.resource.singular);
                context.get(&self.list_path, &action).await
            }
            [name] => context.get(&self.path(name), &self.action(name)).await,
            names => {
                let mut items = Vec::new();
                for name in names {
                    items.push(context.get(&self.path(name), &self.action(name)).await?);
                }
                Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}))
            }
        }
    }

    /// The path of one object.
    fn path(&self, name: &str) -> String {
        self.resource.path_of(&self.namespace, name)
    }

    /// The action of reading one object, for errors.
    fn action(&self, name: &str) -> String {
        format!("read {} {}/{name}", self.resource.singular, self.namespace)
    }
}

fn print_names(
    selection: &Selection,
    value: &Value,
    context: &mut Context,
) -> Result<(), CommandError> {
    let one = std::slice::from_ref(value);
    for object in value["items"].as_array().map_or(one, Vec::as_slice) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        writeln!(context.out, "{}/{name}", selection.resource.singular)?;
    }
    Ok(())
}

async fn print_tables(
    selection: Selection,
    arguments: &Arguments,
    context: &mut Context,
) -> Result<(), CommandError> {
    let resource = selection.resource;
    let namespaces = arguments.all_namespaces && resource.namespaced;
    let wide = arguments.format.output == Some(OutputFormat::Wide);
    let mut table = Table::new(
        wide,
        namespaces,
        !arguments.format.no_headers,
        context.width,
    );
    for name in selection.names.iter().filter(|_| !arguments.watch) {
        let (path, action) = (selection.path(name), selection.action(name));
        let reply = context.get_table(&path, &action).await?;
        table.print(&mut context.out, &reply)?;
        table.headings = false;
    }
    let mut revision = 0;
    if selection.names.is_empty() || arguments.watch {
        let action = format!("read {}s", resource.singular);
        let reply = context.get_table(&selection.list_path, &action).await?;
        revision = revision_of(&reply);
        if let [name] = selection.names.as_slice()
            && reply["rows"].as_array().is_none_or(Vec::is_empty)
        {
            // The error of an object that does not exist.
            context
                .get(&selection.path(name), &selection.action(name))
                .await?;
        }
        if reply["rows"].as_array().is_some_and(Vec::is_empty) && !arguments.watch {
            let scope = match (resource.namespaced, namespaces) {
                (false, _) => "the cluster".to_owned(),
                (true, true) => "any namespace".to_owned(),
                (true, false) => format!("namespace {}", selection.namespace),
            };
            context.note(&format!("no {}s in {scope}", resource.singular));
            return Ok(());
        }
        table.print(&mut context.out, &reply)?;
    }
    if arguments.watch {
        let changes = Changes {
            path: selection.list_path,
            revision,
            deleted: true,
        };
        changes.follow(&mut table, context).await?;
    }
    Ok(())
}

fn list_path(
    resource: Resource,
    names: &[String],
    arguments: &Arguments,
    context: &Context,
) -> String {
    let namespace = Some(context.namespace.as_str()).filter(|_| !arguments.all_namespaces);
    let mut fields = arguments.field_selector.clone();
    if let [name] = names {
        fields = format!("metadata.name={name}");
    }
    let (labels, fields) = (encoded(&arguments.selector), encoded(&fields));
    format!(
        "{}?labelSelector={labels}&fieldSelector={fields}",
        resource.path(namespace)
    )
}
