//! `dormouse delete`: deletes objects. An app's pods are deleted and its VIP is released with it.

use clap::Args;
use dormouse_command::{CommandError, Exit};
use http::Method;

use super::codes::Code;
use super::request::ApiRequest;
use super::resource::{self, Resource};
use super::{Context, apply};

/// The flags of `delete`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse delete app web
  dormouse delete app/web app/api
  dormouse delete -f deploy/examples/docs.yaml")]
pub struct Arguments {
    /// RESOURCE NAME... or RESOURCE/NAME...
    #[arg(
        required_unless_present = "filenames",
        conflicts_with = "filenames",
        value_name = "OBJECT"
    )]
    objects: Vec<String>,
    /// Delete the objects that this manifest, or the manifests of this folder, describe; - is standard input.
    #[arg(short, long = "filename", value_name = "FILE")]
    filenames: Vec<String>,
    /// Succeed for objects that do not exist.
    #[arg(long)]
    ignore_not_found: bool,
}

/// An object to delete.
struct Target {
    resource: Resource,
    namespace: String,
    name: String,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    for target in targets(&arguments, context)? {
        let Target {
            resource,
            namespace,
            name,
        } = &target;
        let singular = resource.singular;
        let action = if resource.namespaced {
            format!("delete {singular} {namespace}/{name}")
        } else {
            format!("delete {singular} {name}")
        };
        let path = resource.path_of(namespace, name);
        let request = ApiRequest::new(Method::DELETE, &path, &action);
        match context.request(request).await {
            Ok(_) => writeln!(context.out, "{singular}/{name} deleted")?,
            Err(error) if error.exit == Exit::NotFound && arguments.ignore_not_found => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Exit::Yes)
}

fn targets(arguments: &Arguments, context: &Context) -> Result<Vec<Target>, CommandError> {
    if arguments.objects.is_empty() {
        let documents = apply::read(&arguments.filenames, &context.namespace)?;
        let targets = documents.into_iter().map(|document| Target {
            resource: document.resource,
            namespace: document.namespace,
            name: document.name,
        });
        return Ok(targets.collect());
    }
    let (resource, names) = resource::objects(&arguments.objects)?;
    if names.is_empty() {
        let message = format!("cannot delete: which {}?", resource.singular);
        let hint = format!("dormouse delete {} NAME", resource.singular);
        return Err(CommandError::new(Code::Kind, Exit::Usage, message, hint));
    }
    let targets = names.into_iter().map(|name| Target {
        resource,
        namespace: context.namespace.clone(),
        name,
    });
    Ok(targets.collect())
}
