//! Read requests: lists, single objects, and the insight of the apps controller.

use std::sync::Arc;
use std::time::Duration;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use dormouse_cluster::{App, Key};
use dormouse_scheduler::proto::ExplainRequest;
use http::HeaderMap;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    Api, Failure, Kind,
    negotiate::{self, Form},
    position::Position,
    query::{ListQuery, Names, Options},
    storage, table, watch,
};

/// Longest wait for the scheduler's explanation of a pod.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(2);

/// Lists or watches a kind, in one namespace or in all.
pub(super) async fn list<K: Kind>(
    State(api): State<Arc<Api>>,
    names: Names,
    Options(query): Options<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let form = negotiate::form(&headers)?;
    let selector = query.selector()?;
    let namespace = Some(names.namespace).filter(|namespace| !namespace.is_empty());
    if query.is_watch() {
        return watch::watch::<K>(api, namespace, query, form).await;
    }
    let from = (&Position::of_list(&query)?, query.limit());
    let mut page = storage::page::<K>(&api, namespace.as_deref(), &selector, from).await?;
    if form == Form::Table {
        K::complete(&api, &mut page.objects).await?;
    }
    let revision = page.revision.to_string();
    let mut body = match form {
        Form::Table => table::table::<K>(&page.objects, &revision, query.include(), true),
        Form::Object => json!({
            "apiVersion": K::api_version(&()), "kind": format!("{}List", K::kind(&())),
            "metadata": {"resourceVersion": revision}, "items": page.objects,
        }),
    };
    if let Some(token) = page.next {
        body["metadata"]["continue"] = json!(token);
    }
    Ok(Json(body).into_response())
}

/// Reads one object. Its status subresource is the same object.
pub(super) async fn get<K: Kind>(
    State(api): State<Arc<Api>>,
    names: Names,
    Options(query): Options<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let form = negotiate::form(&headers)?;
    let key = names.key();
    let object = storage::find::<K>(&api, &key)
        .await?
        .ok_or_else(|| Failure::not_found::<K>(&key.name))?;
    let value = storage::to_json(&object)?;
    let body = match form {
        Form::Table => table::table::<K>(
            &[value],
            &object.revision().to_string(),
            query.include(),
            true,
        ),
        Form::Object => value,
    };
    Ok(Json(body).into_response())
}

/// Explains the state of an app.
pub(super) async fn explain(
    State(api): State<Arc<Api>>,
    names: Names,
) -> Result<Response, Failure> {
    let key = names.key();
    let mut explanation = api.insight.explain(&key.namespace, &key.name);
    if let Some(topics) = explanation
        .as_mut()
        .and_then(|value| value["topics"].as_array_mut())
    {
        let app = storage::find::<App>(&api, &key).await?;
        let lines = app.map(|app| api.insight.settings(&app));
        let lines = lines.filter(|lines| !lines.is_empty());
        topics.extend(lines.map(|lines| json!({"name": "settings", "lines": lines})));
    }
    insight(&api, &key, explanation).await
}

/// Explains a pod, as far as the scheduler knows.
pub(super) async fn explain_pod(
    State(api): State<Arc<Api>>,
    names: Names,
) -> Result<Response, Failure> {
    let key = names.key();
    let found = storage::find::<Pod>(&api, &key).await?;
    found.ok_or_else(|| Failure::not_found::<Pod>(&key.name))?;
    let topics = match explained(&api, &key).await {
        Ok(topics) => topics,
        Err(reason) => json!([{"name": "scheduler", "lines": [reason]}]),
    };
    let explanation = json!({
        "apiVersion": "dormouse.dev/v1",
        "kind": "Explanation",
        "subject": format!("pod/{key}"),
        "topics": topics,
    });
    Ok(Json(explanation).into_response())
}

/// The scheduler's topics about a pod, or the reason for which there are none.
async fn explained(api: &Api, key: &Key) -> Result<Value, String> {
    let request = ExplainRequest {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
    };
    let mut scheduler = api.scheduler.clone();
    let reply = timeout(SCHEDULER_TIMEOUT, scheduler.explain(request)).await;
    let reply = reply.map_err(|_elapsed| "the scheduler does not answer".to_owned())?;
    let reply = reply.map_err(|status| status.message().to_owned())?;
    serde_json::from_slice(&reply.into_inner().topics).map_err(|error| error.to_string())
}

/// Lists the recent wakes of an app.
pub(super) async fn wakes(State(api): State<Arc<Api>>, names: Names) -> Result<Response, Failure> {
    let key = names.key();
    let wakes = api.insight.wakes(&key.namespace, &key.name);
    insight(&api, &key, wakes).await
}

async fn insight(api: &Api, key: &Key, value: Option<Value>) -> Result<Response, Failure> {
    if let Some(value) = value {
        return Ok(Json(value).into_response());
    }
    Err(match storage::find::<App>(api, key).await? {
        Some(_) => Failure::not_yet::<App>(&key.name),
        None => Failure::not_found::<App>(&key.name),
    })
}
