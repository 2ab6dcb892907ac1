//! The `log` subresource of pods, as kube-apiserver has it, and the list of the logs of an app's pods. Logs are on the nodes: they are
//! read from there while the client takes them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use dormouse_cluster::{App, Key, history::APP_LABEL};
use dormouse_fleet::{LogError, LogText, proto::LogRequest};
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use http::header;
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Api, Failure,
    query::{Names, Options, is_true},
    selector::Selector,
    storage,
};

/// Limit of the time in which nodes are asked for logs of pods that are no longer in the store.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(3);

/// The options of a log, kube-apiserver's `PodLogOptions`. Others are ignored, as there.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LogQuery {
    container: String,
    follow: String,
    previous: String,
    timestamps: String,
    tail_lines: String,
    limit_bytes: String,
    since_seconds: String,
    since_time: String,
}

impl LogQuery {
    /// The request for the log of the pod with this key.
    fn request(&self, key: &Key, now: Timestamp) -> Result<LogRequest, Failure> {
        Ok(LogRequest {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            previous: is_true(&self.previous),
            follow: is_true(&self.follow),
            timestamps: is_true(&self.timestamps),
            tail_lines: number("tailLines", &self.tail_lines, 0)?,
            limit_bytes: number("limitBytes", &self.limit_bytes, 1)?,
            since_ms: self.since(now)?.map(Timestamp::as_millisecond),
            ..LogRequest::default()
        })
    }

    fn since(&self, now: Timestamp) -> Result<Option<Timestamp>, Failure> {
        let seconds = number("sinceSeconds", &self.since_seconds, 1)?;
        if self.since_time.is_empty() {
            // Before all time: everything.
            let since = |seconds| now.checked_sub(Duration::from_secs(seconds));
            return Ok(seconds.map(|seconds| since(seconds).unwrap_or(Timestamp::UNIX_EPOCH)));
        }
        if seconds.is_some() {
            let message = "sinceSeconds and sinceTime exclude each other: give one";
            return Err(Failure::bad_request(message));
        }
        let time = self.since_time.parse().map_err(|error| {
            Failure::bad_request(format!("sinceTime {:?}: {error}", self.since_time))
        });
        time.map(Some)
    }
}

fn number(name: &str, text: &str, least: u64) -> Result<Option<u64>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|number| *number >= least);
    let number = number.ok_or_else(|| {
        Failure::bad_request(format!(
            "{name} {text:?} is not a number of at least {least}"
        ))
    });
    number.map(Some)
}

/// Reads the log of a pod. Of a pod that is no longer in the store, the log is read as long as a node keeps it.
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    names: Names,
    Options(query): Options<LogQuery>,
) -> Result<Response, Failure> {
    let key = names.key();
    let request = query.request(&key, Timestamp::now())?;
    let text = match storage::find::<Pod>(&api, &key).await? {
        Some(pod) => of_pod(&api, &pod, &query.container, request).await?,
        None => search(&api, &key, request).await?,
    };
    let shutdown = api.shutdown.clone().cancelled_owned();
    let body = Body::from_stream(text.take_until(shutdown));
    Ok(([(header::CONTENT_TYPE, "text/plain")], body).into_response())
}

async fn of_pod(
    api: &Api,
    pod: &Pod,
    container: &str,
    mut request: LogRequest,
) -> Result<LogText, Failure> {
    let name = request.name.clone();
    let spec = pod.spec.as_ref();
    let mut containers = spec.into_iter().flat_map(|spec| &spec.containers);
    if !container.is_empty() && !containers.any(|one| one.name == container) {
        let message = format!("container {container} is not valid for pod {name}");
        return Err(Failure::bad_request(message));
    }
    let Some(node) = spec.and_then(|spec| spec.node_name.clone()) else {
        let message = format!("pod {name} does not have a host assigned: it has not started");
        return Err(Failure::bad_request(message));
    };
    request.uid = pod.metadata.uid.clone().unwrap_or_default();
    let read = api.fleet.read_log(&node, request).await;
    read.map_err(|error| match error {
        LogError::NoLog(_) => {
            let message = format!("pod {name} has no log on node {node}: it has not started there");
            Failure::bad_request(message)
        }
        LogError::NoPrevious(_) => {
            let message = format!("previous terminated container in pod {name} not found");
            Failure::bad_request(message)
        }
        error => Failure::unavailable(&error.to_string()),
    })
}

/// Reads the log of a pod that is not in the store, from the node that has it.
async fn search(api: &Api, key: &Key, request: LogRequest) -> Result<LogText, Failure> {
    let nodes = api.fleet.log_nodes();
    let mut asked: FuturesUnordered<_> = nodes
        .iter()
        .map(|node| api.fleet.read_log(node, request.clone()))
        .collect();
    let mut busy = None;
    let found = async {
        while let Some(read) = asked.next().await {
            match read {
                Ok(text) => return Some(text),
                Err(error @ LogError::TooMany(_)) => busy = Some(error),
                Err(_) => {}
            }
        }
        None
    };
    let found = tokio::time::timeout(SEARCH_TIMEOUT, found).await;
    let found = found.ok().flatten();
    found.ok_or_else(|| match busy {
        Some(error) => Failure::unavailable(&error.to_string()),
        None => Failure::not_found::<Pod>(&key.name),
    })
}

/// The nodes of an app's pods.
async fn nodes_of(api: &Api, app: &Key) -> Result<BTreeSet<String>, Failure> {
    let namespace = Some(app.namespace.as_str());
    let (pods, _revision) = storage::list::<Pod>(api, namespace, &Selector::default()).await?;
    let own = pods
        .iter()
        .filter(|pod| pod["metadata"]["labels"][APP_LABEL] == app.name.as_str());
    let nodes = own.filter_map(|pod| pod["spec"]["nodeName"].as_str());
    Ok(nodes.map(str::to_owned).collect())
}

/// The query of a list of logs.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ListQuery {
    /// Only logs that may still be written to: only the nodes of the app's pods are asked.
    #[serde(default)]
    running: bool,
}

/// Lists the logs of an app's pods on all nodes, also of pods that have ended, the oldest first.
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    names: Names,
    Options(query): Options<ListQuery>,
) -> Result<Response, Failure> {
    let key = names.key();
    if storage::find::<App>(&api, &key).await?.is_none() {
        return Err(Failure::not_found::<App>(&key.name));
    }
    let mut nodes = api.fleet.log_nodes();
    if query.running {
        let own = nodes_of(&api, &key).await?;
        nodes.retain(|node| own.contains(node));
    }
    let asked = nodes.into_iter().map(async |node| {
        let runs = api.fleet.log_runs(&node, &key.namespace, &key.name);
        match tokio::time::timeout(SEARCH_TIMEOUT, runs).await {
            Ok(Ok(runs)) => runs.into_iter().map(|run| (node.clone(), run)).collect(),
            // What the other nodes have is worth more than an error.
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    });
    let mut runs = join_all(asked).await.concat();
    runs.retain(|(_, run)| !query.running || run.ended_ms == 0);
    runs.sort_by_key(|(_, run)| (run.ended_ms == 0, run.ended_ms, run.attempt));
    let item = |(node, run): (String, dormouse_fleet::proto::LogRun)| {
        let ended = Some(run.ended_ms).filter(|ended| *ended > 0);
        let ended = ended.and_then(|at| Timestamp::from_millisecond(at).ok());
        json!({"pod": run.name, "uid": run.uid, "attempt": run.attempt, "node": node, "ended": ended,
            "bytes": run.bytes, "removedBytes": run.removed_bytes, "ageSeconds": run.age_ms.map(|ms| ms / 1_000)})
    };
    let items: Vec<Value> = runs.into_iter().map(item).collect();
    let list = json!({"apiVersion": "dormouse.dev/v1", "kind": "LogList", "items": items});
    Ok(Json(list).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(query: &Value) -> Result<LogRequest, Failure> {
        let query: LogQuery = serde_json::from_value(query.clone()).unwrap();
        let now = Timestamp::from_second(1_000).unwrap();
        query.request(&Key::new("shop", "web"), now)
    }

    #[test]
    fn the_options_are_those_of_kube_apiserver() {
        let query = json!({"follow": "true", "tailLines": "0", "sinceSeconds": "10", "timestamps": "1", "limitBytes": "5"});
        let want = LogRequest {
            namespace: "shop".into(),
            name: "web".into(),
            follow: true,
            timestamps: true,
            tail_lines: Some(0),
            since_ms: Some(990_000),
            limit_bytes: Some(5),
            ..LogRequest::default()
        };
        assert_eq!(request(&query).unwrap(), want);
        let since =
            request(&json!({"sinceTime": "1970-01-01T00:00:07Z", "previous": "true"})).unwrap();
        assert_eq!((since.since_ms, since.previous), (Some(7_000), true));
    }

    #[test]
    fn an_option_out_of_range_is_refused_by_name() {
        for (name, value) in [
            ("tailLines", "-1"),
            ("limitBytes", "0"),
            ("sinceSeconds", "0"),
            ("sinceSeconds", "x"),
            ("sinceTime", "yesterday"),
        ] {
            let failure = request(&json!({name: value})).unwrap_err();
            assert!(
                failure.status()["message"]
                    .as_str()
                    .unwrap()
                    .starts_with(name)
            );
        }
        let both = json!({"sinceSeconds": "1", "sinceTime": "1970-01-01T00:00:07Z"});
        assert!(request(&both).is_err());
    }
}
