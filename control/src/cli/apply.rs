//! `dormouse apply`: makes what manifests describe so. Everything is read and tried before the first object is
//! stored, so a mistake in the last document leaves nothing half done.

mod manifest;

use clap::Args;
use http::Method;
use serde_json::Value;

use super::{Context, Exit, Failure, context::OBJECT};
pub(super) use manifest::{Document, read};

/// The media type of a server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

/// What to apply.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse apply -f deploy/examples/docs.yaml
  dormouse apply -f a.yaml -f b.yaml
  cat app.yaml | dormouse apply -f - --dry-run")]
pub struct Arguments {
    /// A file with one or more documents; - is standard input.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    filenames: Vec<String>,
    /// Only says what would happen.
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, Failure> {
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
            document.noun.singular, document.name
        )?;
    }
    Ok(Exit::Yes)
}

async fn revision_before(document: &Document, context: &Context) -> Result<Option<Value>, Failure> {
    let what = format!("read {document}");
    match context.get(&document.path(), OBJECT, &what).await {
        Ok(object) => Ok(Some(object["metadata"]["resourceVersion"].clone())),
        Err(failure) if failure.exit == Exit::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn send(document: &Document, dry: bool, context: &Context) -> Result<Value, Failure> {
    let dry = if dry { "&dryRun=All" } else { "" };
    let path = format!("{}?fieldManager=dormouse&force=true{dry}", document.path());
    let body = (APPLY, document.value.to_string().into_bytes());
    let sent = context
        .request(
            Method::PATCH,
            &path,
            OBJECT,
            body,
            &format!("apply {document}"),
        )
        .await;
    sent.map_err(|failure| failure.note(format!("in {}", document.place)))
}
