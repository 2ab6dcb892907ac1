//! `dormouse get`: what runs.

use clap::Args;
use futures::TryStreamExt;
use serde_json::{Value, json};

use super::{
    Context, Exit, Failure,
    context::{OBJECT, TABLE},
    noun::{self, Noun, encoded},
    output::{self, Output},
    screen::Screen,
};

/// What to show.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse get apps                     all apps of the namespace
  dormouse get pods -A -o wide          all pods, with node and address
  dormouse get app web -o yaml          one app, whole
  dormouse get apps -w                  and every change of them")]
pub struct Arguments {
    /// NOUN, NOUN NAME... or NOUN/NAME...; nouns: app, pod, node, event.
    #[arg(required = true)]
    what: Vec<String>,
    /// Of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only those with these labels, such as app=web,tier!=back.
    #[arg(short = 'l', long, default_value = "")]
    selector: String,
    /// Only those with these fields, such as spec.nodeName=node-1.
    #[arg(long, default_value = "")]
    field_selector: String,
    /// The form of the answer.
    #[arg(short, long)]
    output: Option<Output>,
    /// Goes on with every change.
    #[arg(short, long)]
    watch: bool,
    /// Without headings.
    #[arg(long)]
    no_headers: bool,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, Failure> {
    let (noun, names) = noun::objects(&arguments.what)?;
    let what = format!("read {}s", noun.singular);
    match arguments.output {
        Some(output @ (Output::Json | Output::Yaml)) => {
            let value = objects(noun, &names, &arguments, context, OBJECT).await?;
            output::value(&mut context.out, &value, output)?;
        }
        Some(Output::Name) => {
            let value = objects(noun, &names, &arguments, context, OBJECT).await?;
            let one = [value.clone()];
            for object in value["items"]
                .as_array()
                .map_or(one.as_slice(), Vec::as_slice)
            {
                writeln!(
                    context.out,
                    "{}/{}",
                    noun.singular,
                    object["metadata"]["name"].as_str().unwrap_or_default()
                )?;
            }
        }
        wide => return tables(noun, &names, &arguments, wide.is_some(), context, &what).await,
    }
    Ok(Exit::Yes)
}

/// One object, or a list of them.
async fn objects(
    noun: Noun,
    names: &[String],
    arguments: &Arguments,
    context: &Context,
    accept: &str,
) -> Result<Value, Failure> {
    match names {
        [] => {
            context
                .get(
                    &list_path(noun, arguments, context, ""),
                    accept,
                    &format!("list {}s", noun.singular),
                )
                .await
        }
        [name] => one(noun, name, context, accept).await,
        names => {
            let mut items = Vec::new();
            for name in names {
                items.push(one(noun, name, context, accept).await?);
            }
            Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}))
        }
    }
}

async fn one(noun: Noun, name: &str, context: &Context, accept: &str) -> Result<Value, Failure> {
    let what = format!("read {} {}/{name}", noun.singular, context.namespace);
    context
        .get(&noun.path_of(&context.namespace, name), accept, &what)
        .await
}

async fn tables(
    noun: Noun,
    names: &[String],
    arguments: &Arguments,
    wide: bool,
    context: &mut Context,
    what: &str,
) -> Result<Exit, Failure> {
    let namespaces = arguments.all_namespaces && noun.namespaced;
    let mut screen = Screen::new(wide, namespaces, !arguments.no_headers);
    for name in names {
        let table = one(noun, name, context, TABLE).await?;
        screen.show(&mut context.out, &table)?;
        screen.headings = false;
    }
    let mut revision = String::new();
    if names.is_empty() {
        let table = context
            .get(&list_path(noun, arguments, context, ""), TABLE, what)
            .await?;
        table["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut revision);
        if table["rows"].as_array().is_some_and(Vec::is_empty) && !arguments.watch {
            let place = if namespaces {
                "any namespace".to_owned()
            } else {
                format!("namespace {}", context.namespace)
            };
            let place = if noun.namespaced {
                place
            } else {
                "the cluster".to_owned()
            };
            anstream::eprintln!("no {}s in {place}", noun.singular);
            return Ok(Exit::Yes);
        }
        screen.show(&mut context.out, &table)?;
    }
    if arguments.watch {
        follow(noun, arguments, &revision, &mut screen, context).await?;
    }
    Ok(Exit::Yes)
}

/// Shows every change until the server ends the watch or the process is interrupted.
async fn follow(
    noun: Noun,
    arguments: &Arguments,
    revision: &str,
    screen: &mut Screen,
    context: &mut Context,
) -> Result<(), Failure> {
    screen.headings = false;
    let path = list_path(
        noun,
        arguments,
        context,
        &format!("&watch=1&resourceVersion={revision}"),
    );
    let changes = context.watch(&path, TABLE, "watch the server").await?;
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.try_next().await? {
        if change["object"]["kind"] == "Table" {
            screen.show(&mut context.out, &change["object"])?;
        }
    }
    Ok(())
}

fn list_path(noun: Noun, arguments: &Arguments, context: &Context, more: &str) -> String {
    let namespace = Some(context.namespace.as_str()).filter(|_| !arguments.all_namespaces);
    let (labels, fields) = (
        encoded(&arguments.selector),
        encoded(&arguments.field_selector),
    );
    format!(
        "{}?labelSelector={labels}&fieldSelector={fields}{more}",
        noun.path(namespace)
    )
}
