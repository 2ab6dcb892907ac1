//! `dormouse rollout`: the change of an app from one template to another, and the way back.

mod history;
mod status;
mod traffic;

use clap::{Args, Subcommand};
use dormouse_cluster::app::TRAFFIC_NOW;
use dormouse_cluster::history::way_back;
use dormouse_cluster::{App, Object};
use dormouse_command::{CommandError, Exit};
use http::Method;
use serde_json::{Value, json};

use super::Context;
use super::codes::Code;
use super::request::ApiRequest;
use super::resource::{self, APP};
use crate::flags::number;

/// Media type of a merge patch.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Media type of a JSON patch (RFC 6902): its `add` replaces a value that is there.
const JSON_PATCH: &str = "application/json-patch+json";

/// The commands of `rollout`.
#[derive(Debug, Clone, Subcommand)]
pub enum Arguments {
    /// Wait until an app's template is rolled out; exit status 1 if it is not within its deadline.
    #[command(after_help = "Examples:
  dormouse rollout status app web
  dormouse rollout status app/web --watch=false
  dormouse rollout status app/web --timeout 60")]
    Status(status::Arguments),
    /// List the revisions of an app, or show one of them. Control knows of two which had a ready pod: the newest one of which a pod
    /// was ready, and the one before it. (undo) marks the revision to which `rollout undo` returns.
    #[command(after_help = "Examples:
  dormouse rollout history app web
  dormouse rollout history app/web --revision 2")]
    History(history::Arguments),
    /// Return to an earlier revision: the newest one that was ready, of those before the present one.
    #[command(after_help = "Examples:
  dormouse rollout undo app web
  dormouse rollout undo app/web --to-revision 2
  dormouse rollout undo app web --now       traffic that is divided does not wait for pods")]
    Undo(Undo),
    /// Divide the traffic of an app between its revisions, or show how it is divided.
    #[command(after_help = "Examples:
  dormouse rollout traffic app web                       show the split in force
  dormouse rollout traffic app web web-2=90 latest=10    a tenth goes to the app's own template
  dormouse rollout traffic app web latest=100 web-2=0:old
                                                         only an address for revision 2
  dormouse rollout traffic app web latest=100            all traffic to the app's own template")]
    Traffic(traffic::Arguments),
    /// Let the rollout of an app's template wait: pods of the earlier one stay.
    Pause(Target),
    /// Go on with the rollout of a paused app.
    Resume(Target),
}

/// The app of a command.
#[derive(Debug, Clone, Args)]
pub struct Target {
    /// app NAME or app/NAME.
    #[arg(required = true, num_args = 1..=2, value_name = "APP")]
    app: Vec<String>,
}

/// The flags of `rollout undo`.
#[derive(Debug, Clone, Args)]
pub struct Undo {
    #[command(flatten)]
    target: Target,
    /// The number of the revision to return to.
    #[arg(long, value_name = "NUMBER", value_parser = number::<u32>, allow_negative_numbers = true)]
    to_revision: Option<u32>,
    #[command(flatten)]
    now: Now,
}

/// Whether traffic moves without a wait.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Now {
    /// Move divided traffic at once, with the pods that are ready: requests for which there is none are parked.
    #[arg(long)]
    now: bool,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    match arguments {
        Arguments::Status(arguments) => status::run(&arguments, context).await,
        Arguments::History(arguments) => history::run(&arguments, context).await,
        Arguments::Undo(undo) => self::undo(&undo, context).await,
        Arguments::Traffic(arguments) => traffic::run(&arguments, context).await,
        Arguments::Pause(target) => pause(&target, true, context).await,
        Arguments::Resume(target) => pause(&target, false, context).await,
    }
}

impl Target {
    /// The name of the app.
    fn name(&self) -> Result<String, CommandError> {
        app_name(&self.app)
    }
}

impl Now {
    /// Marks the manifest that was just written. One that is written later waits for pods again.
    async fn mark(self, app: &App, context: &Context) -> Result<(), CommandError> {
        if !self.now {
            return Ok(());
        }
        let key = app.key();
        let generation = app.metadata.generation.map(|number| number.to_string());
        let path = APP.path_of(&key.namespace, &key.name);
        let action = format!("move the traffic of app {key} at once");
        let request = ApiRequest {
            media_type: MERGE_PATCH,
            body: json!({"metadata": {"annotations": {TRAFFIC_NOW: generation}}})
                .to_string()
                .into_bytes(),
            ..ApiRequest::new(Method::PATCH, &path, &action)
        };
        context.request(request).await.map(drop)
    }
}

/// The name of the one app in these words: app NAME or app/NAME.
fn app_name(words: &[String]) -> Result<String, CommandError> {
    let usage = |message: String| {
        let hint = "dormouse rollout status app NAME";
        CommandError::new(Code::Kind, Exit::Usage, message, hint)
    };
    let (resource, names) = resource::objects(words)?;
    if resource != APP {
        let message = format!("a {} has no rollout: only apps have", resource.singular);
        return Err(usage(message));
    }
    match names.as_slice() {
        [name] => Ok(name.clone()),
        _ => Err(usage("which app?".to_owned())),
    }
}

/// Reads an app.
async fn read(name: &str, context: &Context) -> Result<App, CommandError> {
    let namespace = &context.namespace;
    let action = format!("read app {namespace}/{name}");
    let value = context.get(&APP.path_of(namespace, name), &action).await?;
    decoded(value)
}

fn decoded<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, CommandError> {
    serde_json::from_value(value).map_err(|error| {
        let message = format!("the server's reply cannot be parsed: {error}");
        let hint = "use the same version of command and server";
        CommandError::new(Code::Output, Exit::No, message, hint)
    })
}

/// Returns to a revision. A patch of the template's fields does not conflict with writes of the status, which are many during a rollout.
async fn undo(undo: &Undo, context: &mut Context) -> Result<Exit, CommandError> {
    let name = undo.target.name()?;
    let app = read(&name, context).await?;
    let number = match undo.to_revision {
        Some(number) => number,
        None => before(&app).ok_or_else(|| {
            let message = format!(
                "app {}/{name} has no earlier revision that did not fail",
                context.namespace
            );
            let hint = format!(
                "dormouse rollout history app {name}; rollout undo app {name} --to-revision NUMBER returns to any"
            );
            CommandError::new(Code::NoRevision, Exit::No, message, hint)
        })?,
    };
    if number == app.revision_number() {
        writeln!(context.out, "app/{name} is at revision {number}")?;
        return Ok(Exit::Yes);
    }
    let revision = history::read_one(&name, &app, number, context).await?;
    let path = APP.path_of(&context.namespace, &name);
    let action = format!(
        "return app {}/{name} to revision {number}",
        context.namespace
    );
    let spec = app.spec.with_template(revision.spec.template);
    let replaced = [
        ("container", json!(spec.container)),
        ("targetPort", json!(spec.target_port)),
        ("nodeSelector", json!(spec.node_selector)),
        (
            "terminationGracePeriodSeconds",
            json!(spec.termination_grace_period_seconds),
        ),
    ];
    let operation = |(field, value): (&str, Value)| json!({"op": "add", "path": format!("/spec/{field}"), "value": value});
    // Another manifest that is applied meanwhile is not overwritten; writes of the status do not change the generation.
    let unchanged =
        json!({"op": "test", "path": "/metadata/generation", "value": app.metadata.generation});
    let operations: Vec<Value> = std::iter::once(unchanged)
        .chain(replaced.into_iter().map(operation))
        .collect();
    let request = ApiRequest {
        media_type: JSON_PATCH,
        body: json!(operations).to_string().into_bytes(),
        ..ApiRequest::new(Method::PATCH, &path, &action)
    };
    let app: App = decoded(context.request(request).await?)?;
    undo.now.mark(&app, context).await?;
    writeln!(context.out, "app/{name} returned to revision {number}")?;
    Ok(Exit::Yes)
}

/// The revision to which an undo returns.
fn before(app: &App) -> Option<u32> {
    way_back(app.status.as_ref()?)
}

async fn pause(target: &Target, paused: bool, context: &mut Context) -> Result<Exit, CommandError> {
    let name = target.name()?;
    let verb = if paused { "pause" } else { "resume" };
    let action = format!("{verb} the rollout of app {}/{name}", context.namespace);
    let path = APP.path_of(&context.namespace, &name);
    let request = ApiRequest {
        media_type: MERGE_PATCH,
        body: json!({"spec": {"paused": paused}}).to_string().into_bytes(),
        ..ApiRequest::new(Method::PATCH, &path, &action)
    };
    context.request(request).await?;
    writeln!(context.out, "app/{name} {verb}d")?;
    Ok(Exit::Yes)
}
