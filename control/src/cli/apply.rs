//! `dormouse apply`: server-side apply of manifests. Every document is sent as a dry run before the first one is
//! stored, so an error in the last document leaves the cluster unchanged.

mod manifest;

use clap::Args;
use dormouse_command::{CommandError, Exit};
use http::Method;
use serde_json::Value;

use super::Context;
use super::request::ApiRequest;
pub(crate) use manifest::unusable;
pub(super) use manifest::{Document, read};

/// The media type of a server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

/// The flags of `apply`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse apply -f deploy/examples/docs.yaml
  dormouse apply -f a.yaml -f b.yaml
  dormouse apply -f deploy/examples     all manifests of a folder
  cat app.yaml | dormouse apply -f - --dry-run")]
pub struct Arguments {
    /// A manifest of one or more documents, or a folder of manifests; - is standard input.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    filenames: Vec<String>,
    /// Only print what would change.
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    let documents = read(&arguments.filenames, &context.namespace)?;
    for document in &documents {
        send(document, true, context).await?;
    }
    for document in &documents {
        let before = revision_before(document, context).await?;
        let after = send(document, arguments.dry_run, context).await?;
        let verb = match before {
            None => "created",
            Some(_) if arguments.dry_run => "checked",
            Some(before) if after["metadata"]["resourceVersion"] == before => "unchanged",
            Some(_) => "configured",
        };
        let dry = if arguments.dry_run { " (dry run)" } else { "" };
        writeln!(
            context.out,
            "{}/{} {verb}{dry}",
            document.resource.singular, document.name
        )?;
    }
    Ok(Exit::Yes)
}

async fn revision_before(
    document: &Document,
    context: &Context,
) -> Result<Option<Value>, CommandError> {
    let action = format!("read {document}");
    match context.get(&document.path(), &action).await {
        Ok(object) => Ok(Some(object["metadata"]["resourceVersion"].clone())),
        Err(error) if error.exit == Exit::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn send(document: &Document, dry: bool, context: &Context) -> Result<Value, CommandError> {
    let dry = if dry { "&dryRun=All" } else { "" };
    let path = format!("{}?fieldManager=dormouse&force=true{dry}", document.path());
    let action = format!("apply {document}");
    let request = ApiRequest {
        media_type: APPLY,
        body: document.value.to_string().into_bytes(),
        ..ApiRequest::new(Method::PATCH, &path, &action)
    };
    let sent = context.request(request).await;
    sent.map_err(|error| error.note(format!("in {}", document.place)))
}
