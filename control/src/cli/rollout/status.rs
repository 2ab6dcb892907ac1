//! `dormouse rollout status`: waits for the condition `Progressing`.

use std::time::Duration;

use clap::{ArgAction, Args};
use dormouse_autoscaler::settings::Cluster;
use dormouse_cluster::app::PROGRESSING;
use dormouse_cluster::{App, AppStatus, State, autoscaler_config};
use dormouse_command::{CommandError, Exit, wrap};
use tokio::time::{Instant, sleep};

use super::{Target, before, decoded, read, traffic};
use crate::cli::Context;
use crate::cli::codes::Code;
use crate::cli::resource::CONFIG_MAP;
use crate::flags::number;

/// Pause between two reads of the app.
const PAUSE: Duration = Duration::from_millis(500);

/// The flags of `rollout status`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Wait until the rollout has ended; false: print its state only.
    #[arg(short, long, default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    watch: bool,
    /// Longest time to wait in seconds; 0: until the rollout has ended.
    #[arg(long, default_value_t = 0, value_name = "SECONDS", value_parser = number::<u64>, allow_negative_numbers = true)]
    timeout: u64,
}

/// The state of a rollout, in words.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Complete(String),
    Waiting(String),
    Failed(String),
}

pub(super) async fn run(
    arguments: &Arguments,
    context: &mut Context,
) -> Result<Exit, CommandError> {
    let name = arguments.target.name()?;
    let begin = Instant::now();
    let timeout = Duration::from_secs(arguments.timeout);
    let mut printed = String::new();
    let cluster = cluster(context).await?;
    loop {
        let app = read(&name, context).await?;
        let (text, failed) = match of_all(&app, &cluster) {
            Outcome::Complete(text) => {
                print(&name, &text, context)?;
                traffic::print(&traffic::lines(&app), context)?;
                return Ok(Exit::Yes);
            }
            Outcome::Failed(text) => (text, true),
            Outcome::Waiting(text) => (text, false),
        };
        if failed {
            return Err(failure(&name, &text, &app, context));
        }
        if text != printed {
            print(&name, &text, context)?;
            printed = text;
        }
        if !arguments.watch {
            return Ok(Exit::Yes);
        }
        if !timeout.is_zero() && begin.elapsed() + PAUSE > timeout {
            let status = app.status.clone().unwrap_or_default();
            let text = with_reason(printed, &status);
            let text = format!("not rolled out within {} s: {text}", timeout.as_secs());
            return Err(failure(&name, &text, &app, context));
        }
        sleep(PAUSE).await;
    }
}

/// Prints the state of the rollout, at once also into a pipe.
fn print(name: &str, text: &str, context: &mut Context) -> Result<(), CommandError> {
    for line in wrap(&format!("app/{name}: {text}"), context.width) {
        writeln!(context.out, "{line}")?;
    }
    Ok(context.out.flush()?)
}

fn failure(name: &str, text: &str, app: &App, context: &Context) -> CommandError {
    let message = format!("app {}/{name}: {text}", context.namespace);
    CommandError::new(Code::Rollout, Exit::No, message, next_step(name, app))
}

/// What ends the state in which a rollout is. An undo changes the template only, and needs an earlier one.
fn next_step(name: &str, app: &App) -> String {
    match traffic::condition(app).map(|condition| condition.reason.as_str()) {
        Some("RevisionMissing") => {
            format!(
                "dormouse rollout history app {name}, then rollout traffic app {name} REVISION=PERCENT"
            )
        }
        Some("NameTaken") => {
            format!(
                "delete the app that has the name, or dormouse rollout traffic app {name} latest=100"
            )
        }
        _ if app.spec.paused => format!("dormouse rollout resume app {name}"),
        _ if before(app).is_some() => format!("dormouse rollout undo app {name}"),
        _ => format!("dormouse explain app {name}, then apply a repaired manifest"),
    }
}

/// The settings of apps that set none. Those of an invalid ConfigMap do not count.
async fn cluster(context: &Context) -> Result<Cluster, CommandError> {
    let defaults = Cluster::starting_asleep(0);
    let key = autoscaler_config::key();
    let path = CONFIG_MAP.path_of(&key.namespace, &key.name);
    match context.get(&path, &format!("read ConfigMap {key}")).await {
        Ok(map) => {
            let settings = autoscaler_config::settings(&decoded(map)?, defaults.clone());
            Ok(settings.unwrap_or(defaults))
        }
        // A user who may read apps only gets an answer too.
        Err(error) if [Exit::NotFound, Exit::NotAllowed].contains(&error.exit) => Ok(defaults),
        Err(error) => Err(error),
    }
}

/// The outcome of the template's rollout and of the split of the traffic.
fn of_all(app: &App, cluster: &Cluster) -> Outcome {
    let outcome = outcome(app, cluster);
    let Outcome::Complete(text) = outcome else {
        return outcome;
    };
    if !app.divides_traffic() {
        return Outcome::Complete(text);
    }
    let status = app.status.clone().unwrap_or_default();
    let Some(condition) = traffic::condition(app) else {
        return Outcome::Waiting("control has not divided the traffic yet".to_owned());
    };
    let message = condition.message.clone();
    match condition.status.as_str() {
        "False" => Outcome::Failed(message),
        "True" => Outcome::Complete(text),
        _ if sleeps(app, &status, cluster) => Outcome::Complete(format!("{text}; {message}")),
        _ => Outcome::Waiting(message),
    }
}

fn outcome(app: &App, cluster: &Cluster) -> Outcome {
    let status = app.status.clone().unwrap_or_default();
    let number = app.revision_number();
    let progressing = status.condition(PROGRESSING);
    let has_failed = progressing.is_some_and(|condition| condition.status == "False");
    let is_asleep = sleeps(app, &status, cluster);
    if is_asleep && !has_failed {
        let text = if status.ready_revision == Some(number) {
            format!("revision {number} is rolled out, and sleeps")
        } else {
            format!("it sleeps; revision {number} starts with its next wake")
        };
        return Outcome::Complete(text);
    }
    // The API removes the condition when the template changes: one of an app that sleeps is about its template.
    let is_seen = status.observed_generation >= app.metadata.generation || is_asleep;
    let Some(progressing) = progressing.filter(|_| is_seen) else {
        return Outcome::Waiting(format!("revision {number}: control has not begun yet"));
    };
    let text = progressing.message.clone();
    match (progressing.status.as_str(), progressing.reason.as_str()) {
        ("False", _) => Outcome::Failed(with_reason(text, &status)),
        (_, "NewRevisionAvailable") if status.ready == 0 => {
            let text = format!("revision {number}: none of {} pods is ready", status.wanted);
            Outcome::Waiting(with_reason(text, &status))
        }
        (_, "NewRevisionAvailable") => Outcome::Complete(text),
        _ => Outcome::Waiting(text),
    }
}

/// A failure with what keeps pods from being ready, unless it has that.
fn with_reason(text: String, status: &AppStatus) -> String {
    let Some(reason) = status
        .reason
        .as_deref()
        .filter(|reason| !text.contains(reason))
    else {
        return text;
    };
    let message = status.message.as_deref().unwrap_or_default();
    let first = message.lines().next().unwrap_or_default();
    format!("{text}; {reason}: {first}")
}

/// Whether the app sleeps, and control will not start it: not so if its manifest wants pods and control has not seen it yet.
fn sleeps(app: &App, status: &AppStatus, cluster: &Cluster) -> bool {
    let settings = app.autoscaling(cluster).settings;
    let is_new = status.observed_generation.is_none();
    let starts = settings.pods_idle() > 0 || (is_new && settings.initial_scale > 0);
    (status.state, status.wanted) == (State::Asleep, 0) && !starts
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(status: &Value) -> Outcome {
        let app = json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {"name": "web", "generation": 3},
            "spec": {"container": {"name": "app"}}, "status": status,
        });
        outcome(&serde_json::from_value(app).unwrap(), &none())
    }

    /// The settings without a ConfigMap.
    fn none() -> Cluster {
        Cluster::starting_asleep(0)
    }

    fn awake(observed: u32, status: &str, reason: &str) -> Value {
        json!({
            "state": "Awake", "ready": 1, "wanted": 1, "revision": 2, "observedGeneration": observed,
            "conditions": [{
                "type": "Progressing", "status": status, "reason": reason, "message": "text",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        })
    }

    #[test]
    fn a_rollout_is_complete_when_its_condition_about_the_newest_manifest_says_so() {
        let text = || "text".to_owned();
        assert_eq!(
            of(&awake(3, "True", "NewRevisionAvailable")),
            Outcome::Complete(text())
        );
        assert_eq!(
            of(&awake(3, "True", "RollingOut")),
            Outcome::Waiting(text())
        );
        assert_eq!(of(&awake(3, "Unknown", "Paused")), Outcome::Waiting(text()));
        assert_eq!(
            of(&awake(3, "False", "ProgressDeadlineExceeded")),
            Outcome::Failed(text())
        );
        let mut failing = awake(3, "False", "ProgressDeadlineExceeded");
        failing["reason"] = json!("NotListening");
        failing["message"] = json!("nothing listens on port 8081\nmore");
        assert_eq!(
            of(&failing),
            Outcome::Failed("text; NotListening: nothing listens on port 8081".to_owned())
        );
        let earlier = of(&awake(2, "True", "NewRevisionAvailable"));
        assert!(matches!(earlier, Outcome::Waiting(_)), "{earlier:?}");
    }

    #[test]
    fn the_next_step_is_what_ends_the_state() {
        let of = |spec: Value, reason: &str, status: Value| {
            let mut status = status;
            status["conditions"] = json!([{
                "type": "TrafficReady", "status": "False", "reason": reason, "message": "text",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3,
            }]);
            let mut app = json!({
                "apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {"name": "web", "generation": 3},
                "spec": spec, "status": status,
            });
            app["spec"]["container"] = json!({"name": "app"});
            next_step("web", &serde_json::from_value(app).unwrap())
        };
        let second = || json!({"revision": 2, "readyRevision": 1});
        let undo = "dormouse rollout undo app web";
        assert_eq!(of(json!({}), "RolloutFailed", second()), undo);
        assert!(!of(json!({}), "RolloutFailed", json!({})).contains("undo"));
        assert_eq!(
            of(json!({"paused": true}), "RolloutFailed", second()),
            "dormouse rollout resume app web"
        );
        for reason in ["RevisionMissing", "NameTaken"] {
            let step = of(json!({"paused": true}), reason, second());
            assert!(step.contains("rollout traffic app web"), "{step}");
            assert!(!step.contains("undo"), "{step}");
        }
    }

    #[test]
    fn a_sleeping_app_has_nothing_to_roll_out() {
        let asleep = |ready: u32| json!({"state": "Asleep", "revision": 2, "readyRevision": ready});
        let (ready, new) = (of(&asleep(2)), of(&asleep(1)));
        assert_eq!(
            ready,
            Outcome::Complete("revision 2 is rolled out, and sleeps".to_owned())
        );
        let text = "it sleeps; revision 2 starts with its next wake";
        assert_eq!(new, Outcome::Complete(text.to_owned()));
    }

    #[test]
    fn an_app_that_control_will_start_or_that_slept_when_overdue_is_not_complete() {
        let of_scale = |scale: Value| {
            let app = json!({
                "apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {"name": "web", "generation": 1},
                "spec": {"container": {"name": "app"}, "scale": scale}, "status": {},
            });
            outcome(&serde_json::from_value(app).unwrap(), &none())
        };
        for scale in [json!({"min": 1}), json!({"initialScale": 1})] {
            let new = of_scale(scale);
            assert!(matches!(new, Outcome::Waiting(_)), "{new:?}");
        }
        let slept = of_scale(json!({}));
        assert!(matches!(slept, Outcome::Complete(_)), "{slept:?}");
        let mut overdue = awake(3, "False", "ProgressDeadlineExceeded");
        overdue["state"] = json!("Asleep");
        overdue["wanted"] = json!(0);
        assert_eq!(of(&overdue), Outcome::Failed("text".to_owned()));
    }

    #[test]
    fn a_rollout_whose_traffic_is_divided_is_complete_when_the_split_is_in_force() {
        let of = |status: &str, generation: u32, state: &str| {
            let mut value = awake(3, "True", "NewRevisionAvailable");
            value["state"] = json!(state);
            value["wanted"] = json!(u32::from(state == "Awake"));
            value["conditions"].as_array_mut().unwrap().push(json!({
                "type": "TrafficReady", "status": status, "reason": "a", "message": "split",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation,
            }));
            let app = json!({
                "apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {"name": "web", "generation": 3},
                "spec": {"container": {"name": "app"}, "traffic": [{"latestRevision": true, "percent": 100}]},
                "status": value,
            });
            let app: App = serde_json::from_value(app).unwrap();
            of_all(&app, &none())
        };
        let split = || "split".to_owned();
        assert_eq!(of("True", 3, "Awake"), Outcome::Complete("text".to_owned()));
        assert_eq!(of("False", 3, "Awake"), Outcome::Failed(split()));
        assert_eq!(of("Unknown", 3, "Awake"), Outcome::Waiting(split()));
        assert!(matches!(of("True", 2, "Awake"), Outcome::Waiting(_)));
        assert!(matches!(of("Unknown", 3, "Asleep"), Outcome::Complete(_)));
    }
}
