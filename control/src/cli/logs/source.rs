//! The pods whose logs are shown: of an app, those that run, or one that has ended.

use dormouse_command::{CommandError, Exit};
use serde_json::Value;

use crate::cli::Context;
use crate::cli::codes::Code;
use crate::cli::resource::{APP, POD, encoded};

/// The log of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    /// Name of the pod.
    pub(super) pod: String,
    /// The run before its last one.
    pub(super) previous: bool,
}

impl Source {
    /// The path of the log, with the options of the query.
    pub(super) fn path(&self, namespace: &str, options: &str) -> String {
        let path = POD.path_of(namespace, &self.pod);
        format!("{path}/log?previous={}{options}", self.previous)
    }
}

/// An app whose logs are asked for.
pub(super) struct App<'a> {
    pub(super) name: &'a str,
    pub(super) context: &'a mut Context,
}

impl App<'_> {
    /// The logs to show; at least one.
    pub(super) async fn sources(
        &mut self,
        previous: bool,
        all_pods: bool,
    ) -> Result<Vec<Source>, CommandError> {
        let running = self.running().await?;
        let runs = if previous || running.is_empty() {
            self.runs().await?
        } else {
            Vec::new()
        };
        if previous {
            let source = before_last(&runs).ok_or_else(|| self.none("no earlier pod"))?;
            let note = format!("this is the log of pod/{}", source.pod);
            self.context.note(&note);
            return Ok(vec![source]);
        }
        let source = |pod: &String| Source {
            pod: pod.clone(),
            previous: false,
        };
        if all_pods && !running.is_empty() {
            return Ok(running.iter().map(source).collect());
        }
        if let Some(newest) = running.last() {
            if running.len() > 1 {
                let (name, pods) = (self.name, running.len());
                let note = format!(
                    "app/{name} has {pods} pods: this is the log of pod/{newest}; --all-pods shows all"
                );
                self.context.note(&note);
            }
            return Ok(vec![source(newest)]);
        }
        let (pod, ended) = runs
            .last()
            .map(pod_and_end)
            .ok_or_else(|| self.none("no pod"))?;
        let note = format!(
            "no pod of app/{} runs: this is the log of its last one, pod/{pod}, which ended at {ended}",
            self.name
        );
        self.context.note(&note);
        Ok(vec![source(&pod)])
    }

    /// Names of the app's pods, the newest last.
    async fn running(&self) -> Result<Vec<String>, CommandError> {
        let selector = encoded(&format!("dormouse.dev/app={}", self.name));
        let path = format!(
            "{}?labelSelector={selector}",
            POD.path(Some(&self.context.namespace))
        );
        let list = self.context.get(&path, "list pods").await?;
        let mut pods: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
        // RFC 3339 in one time zone sorts as text.
        pods.sort_by_key(|pod| pod["metadata"]["creationTimestamp"].as_str());
        Ok(pods
            .into_iter()
            .map(|pod| text(&pod["metadata"]["name"]))
            .collect())
    }

    /// The runs of its pods of which nodes have logs, in order of their ends.
    async fn runs(&self) -> Result<Vec<Value>, CommandError> {
        let path = format!("{}/logs", APP.path_of(&self.context.namespace, self.name));
        let action = format!(
            "list the logs of app {}/{}",
            self.context.namespace, self.name
        );
        let list = self.context.get(&path, &action).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    fn none(&self, what: &str) -> CommandError {
        let message = format!(
            "{what} of app {}/{} has a log: none has run in the time for which connected nodes keep logs",
            self.context.namespace, self.name
        );
        let hint = format!(
            "send it a request, which wakes it; then dormouse logs app/{}",
            self.name
        );
        CommandError::new(Code::NoLog, Exit::No, message, hint)
    }
}

/// The run before the last one. It may be of the same pod.
fn before_last(runs: &[Value]) -> Option<Source> {
    let [.., run, _last] = runs else { return None };
    let later = runs.iter().filter(|one| {
        one["uid"] == run["uid"] && one["attempt"].as_u64() > run["attempt"].as_u64()
    });
    Some(Source {
        pod: text(&run["pod"]),
        previous: later.count() > 0,
    })
}

fn pod_and_end(run: &Value) -> (String, String) {
    let ended = run["ended"].as_str().unwrap_or("now");
    (text(&run["pod"]), ended.to_owned())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_previous_log_is_that_of_the_pod_or_of_the_run_before() {
        let run = |pod: &str, attempt: u32| json!({"pod": pod, "uid": pod, "attempt": attempt});
        let source = |pod: &str, previous| {
            Some(Source {
                pod: pod.to_owned(),
                previous,
            })
        };
        assert_eq!(before_last(&[run("a", 0)]), None);
        assert_eq!(before_last(&[run("a", 0), run("b", 0)]), source("a", false));
        assert_eq!(before_last(&[run("b", 0), run("b", 1)]), source("b", true));
    }

    #[test]
    fn a_log_is_at_the_path_of_kube_apiserver() {
        let source = Source {
            pod: "web-1".into(),
            previous: true,
        };
        assert_eq!(
            source.path("shop", "&tailLines=1"),
            "/api/v1/namespaces/shop/pods/web-1/log?previous=true&tailLines=1"
        );
        let source = Source {
            previous: false,
            ..source
        };
        assert_eq!(
            source.path("shop", ""),
            "/api/v1/namespaces/shop/pods/web-1/log?previous=false"
        );
    }
}
