//! `dormouse rollout traffic`: sets and shows how an app's traffic is divided between its revisions.

use clap::Args;
use dormouse_cluster::app::TRAFFIC_READY;
use dormouse_cluster::revision::key_of;
use dormouse_cluster::{App, Object, TrafficTarget};
use dormouse_command::{Columns, CommandError, Exit, wrap};
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::{MERGE_PATCH, Now, app_name, decoded, history, read};
use crate::cli::Context;
use crate::cli::codes::Code;
use crate::cli::request::ApiRequest;
use crate::cli::resource::APP;

/// The flags of `rollout traffic`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// app NAME or app/NAME, then the targets: REVISION=PERCENT, or REVISION=PERCENT:TAG for an address of its own. REVISION is the
    /// name of a revision, its number, or latest.
    #[arg(required = true, num_args = 1.., value_name = "APP [TARGET]")]
    words: Vec<String>,
    #[command(flatten)]
    now: Now,
}

pub(super) async fn run(
    arguments: &Arguments,
    context: &mut Context,
) -> Result<Exit, CommandError> {
    let (app, targets) = split(&arguments.words);
    let name = app_name(app)?;
    if targets.is_empty() {
        let app = read(&name, context).await?;
        let lines = lines(&app);
        if lines.is_empty() {
            writeln!(
                context.out,
                "app/{name}: all traffic goes to its own template"
            )?;
        }
        print(&lines, context)?;
        return Ok(Exit::Yes);
    }
    let targets: Result<Vec<TrafficTarget>, CommandError> =
        targets.iter().map(|word| target(&name, word)).collect();
    let targets = targets?;
    let path = APP.path_of(&context.namespace, &name);
    let action = format!("divide the traffic of app {}/{name}", context.namespace);
    let request = ApiRequest {
        media_type: MERGE_PATCH,
        body: json!({"spec": {"traffic": manifest(&targets)}})
            .to_string()
            .into_bytes(),
        ..ApiRequest::new(Method::PATCH, &path, &action)
    };
    let app: App = decoded(context.request(request).await?)?;
    arguments.now.mark(&app, context).await?;
    warn_of_missing(&name, &app, context).await?;
    let done = format!(
        "app/{name}: traffic changed; `dormouse rollout status app {name}` waits until it is in force"
    );
    for line in wrap(&done, context.width) {
        writeln!(context.out, "{line}")?;
    }
    Ok(Exit::Yes)
}

/// The words that name the app, and the targets.
fn split(words: &[String]) -> (&[String], &[String]) {
    let in_one_word = words.first().is_some_and(|first| first.contains('/'));
    words.split_at(words.len().min(if in_one_word { 1 } else { 2 }))
}

/// Writes a warning for each target whose revision does not exist: it is stored, as it may come later, and has no effect until then.
async fn warn_of_missing(name: &str, app: &App, context: &mut Context) -> Result<(), CommandError> {
    let revisions = history::list(name, app, context).await?;
    let known: Vec<String> = revisions.iter().map(|one| one.key().name).collect();
    for target in &app.spec.traffic {
        if let Some(missing) = target
            .revision_name
            .as_ref()
            .filter(|one| !known.contains(one))
        {
            context.note(&format!(
                "warning: app/{name} has no revision {missing}: the present split stays until it has; dormouse rollout history app {name}"
            ));
        }
    }
    Ok(())
}

/// The targets in the manifest. All traffic for the app's own template needs none.
fn manifest(targets: &[TrafficTarget]) -> Value {
    match targets {
        [only] if only.is_latest() && only.percent == 100 && only.tag.is_none() => Value::Null,
        targets => json!(targets),
    }
}

/// A target: `web-2=90`, `2=90`, `latest=10` or `web-2=0:tag`.
fn target(app: &str, word: &str) -> Result<TrafficTarget, CommandError> {
    let parsed = word.split_once('=').and_then(|(revision, rest)| {
        let (percent, tag) = rest.split_once(':').map_or((rest, None), |(percent, tag)| {
            (percent, Some(tag.to_owned()))
        });
        let percent = percent.trim_end_matches('%').parse().ok()?;
        let is_latest = revision == "latest";
        let is_number = revision.parse::<u32>().is_ok();
        let named = if is_number {
            format!("{app}-{revision}")
        } else {
            revision.to_owned()
        };
        Some(TrafficTarget {
            revision_name: (!is_latest).then_some(named),
            latest_revision: is_latest.then_some(true),
            percent,
            tag,
        })
    });
    parsed.ok_or_else(|| no_target(app, word))
}

fn no_target(app: &str, word: &str) -> CommandError {
    let (message, hint) = if word.contains('=') {
        let message = "is no target: write REVISION=PERCENT or REVISION=PERCENT:TAG";
        (message, format!("{app}-1=90 latest=10"))
    } else {
        let message = "has no percentage: write REVISION=PERCENT";
        (message, format!("{word}=100"))
    };
    let (message, hint) = (
        format!("`{word}` {message}"),
        format!("dormouse rollout traffic app {app} {hint}"),
    );
    CommandError::new(Code::Kind, Exit::Usage, message, hint)
}

/// The split in force as a table, and why the manifest's is not; nothing if the traffic is not divided.
pub(super) fn lines(app: &App) -> Vec<Vec<String>> {
    let status = app.status.clone().unwrap_or_default();
    if status.traffic.is_empty() {
        return Vec::new();
    }
    let key = app.key();
    let rows = status.traffic.iter().map(|target| {
        let name = key_of(&key, target.revision).name;
        let latest = if target.latest { " (latest)" } else { "" };
        vec![
            format!("{name}{latest}"),
            format!("{}%", target.percent),
            target.tag.clone().unwrap_or_default(),
            target.vip.to_string(),
        ]
    });
    let headings = ["REVISION", "TRAFFIC", "TAG", "ADDRESS"].map(str::to_owned);
    [headings.to_vec()].into_iter().chain(rows).collect()
}

/// Prints a table.
pub(super) fn print(lines: &[Vec<String>], context: &mut Context) -> Result<(), CommandError> {
    Columns::for_width(context.width).write_all(&mut context.out, lines)?;
    Ok(())
}

/// The condition about the split, if control has seen the newest manifest.
pub(super) fn condition(app: &App) -> Option<&Condition> {
    let condition = app.status.as_ref()?.condition(TRAFFIC_READY)?;
    (condition.observed_generation >= app.metadata.generation).then_some(condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_revision_its_number_or_the_latest() {
        let of = |word| serde_json::to_value(target("web", word).unwrap()).unwrap();
        assert_eq!(
            of("web-2=90"),
            json!({"revisionName": "web-2", "percent": 90})
        );
        assert_eq!(of("2=90%"), json!({"revisionName": "web-2", "percent": 90}));
        assert_eq!(
            of("latest=10"),
            json!({"latestRevision": true, "percent": 10})
        );
        let tagged = json!({"revisionName": "web-2", "percent": 0, "tag": "old"});
        assert_eq!(of("web-2=0:old"), tagged);
        for word in ["web-2=", "web-2=x", "web-2=-1"] {
            assert!(target("web", word).is_err(), "{word}");
        }
    }

    #[test]
    fn every_word_after_the_app_is_a_target() {
        let of = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let (app, targets) = split(&words);
            (app.len(), targets.len())
        };
        assert_eq!(of("app/web latest web-1=50"), (1, 2));
        assert_eq!(of("app web latest"), (2, 1));
        assert_eq!(of("app"), (1, 0));
        let error = target("web", "latest").unwrap_err();
        assert!(error.message.contains("`latest` has no percentage"));
        assert_eq!(error.hint, "dormouse rollout traffic app web latest=100");
    }

    #[test]
    fn all_traffic_for_the_apps_own_template_needs_no_targets() {
        let of = |words: &[&str]| {
            let targets = words.iter().map(|word| target("web", word).unwrap());
            manifest(&targets.collect::<Vec<_>>())
        };
        assert_eq!(of(&["latest=100"]), Value::Null);
        assert!(of(&["latest=100:now"]).is_array());
        assert!(of(&["latest=90", "web-1=10"]).is_array());
    }
}
