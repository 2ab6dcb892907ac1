//! Reading: lists, single objects, and what the controller can tell of an app.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json,
    extract::{Path, Query, State},
    response::{IntoResponse, Response},
};
use dormouse_cluster::{App, Key};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Api, Failure, Kind,
    accept::{self, Form},
    select::Selector,
    table::{self, Include},
    watch,
};

/// What a client may ask of a list. Everything else that Kubernetes knows here (`limit`, `resourceVersion` of a list)
/// allows a server to answer with everything, newest, which this one does.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListQuery {
    watch: String,
    label_selector: String,
    field_selector: String,
    pub(super) resource_version: String,
    pub(super) timeout_seconds: Option<u32>,
    pub(super) send_initial_events: String,
    include_object: String,
}

impl ListQuery {
    pub(super) fn selector(&self) -> Result<Selector, Failure> {
        Selector::parse(&self.label_selector, &self.field_selector)
    }

    pub(super) fn include(&self) -> Include {
        match self.include_object.as_str() {
            "None" => Include::None,
            "Object" => Include::Object,
            _ => Include::Metadata,
        }
    }

    fn is_watch(&self) -> bool {
        is_true(&self.watch)
    }
}

/// A flag of a query as Go's clients write it.
pub(super) fn is_true(text: &str) -> bool {
    matches!(text, "1" | "true" | "True" | "t")
}

/// What a path names: at most a namespace and a name.
pub(super) type Names = Path<HashMap<String, String>>;

/// The key that a path names.
pub(super) fn key_of(names: &HashMap<String, String>) -> Key {
    let part = |name| names.get(name).cloned().unwrap_or_default();
    Key::new(part("namespace"), part("name"))
}

/// Lists or watches a kind, in one namespace or all.
pub(super) async fn list<K: Kind>(
    State(api): State<Arc<Api>>,
    Path(names): Names,
    Query(query): Query<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let form = accept::form(&headers)?;
    let selector = query.selector()?;
    let namespace = names.get("namespace").cloned();
    if query.is_watch() {
        return watch::watch::<K>(api, namespace, query, form).await;
    }
    let (objects, revision) = selected::<K>(&api, namespace.as_deref(), &selector).await?;
    let revision = revision.to_string();
    let body = match form {
        Form::Table => table::table::<K>(&objects, &revision, query.include(), true),
        Form::Object => json!({
            "apiVersion": K::api_version(&()), "kind": format!("{}List", K::kind(&())),
            "metadata": {"resourceVersion": revision}, "items": objects,
        }),
    };
    Ok(Json(body).into_response())
}

/// The selected objects of a kind, and the revision at which they were read.
pub(super) async fn selected<K: Kind>(
    api: &Api,
    namespace: Option<&str>,
    selector: &Selector,
) -> Result<(Vec<Value>, u64), Failure> {
    let list = api.client.list::<K>(namespace).await;
    let list = list.map_err(|error| Failure::of_client::<K>(&error, &Key::cluster_scoped("")))?;
    let values = list
        .items
        .iter()
        .map(value)
        .collect::<Result<Vec<_>, _>>()?;
    Ok((
        values
            .into_iter()
            .filter(|value| selector.matches(value))
            .collect(),
        list.revision,
    ))
}

/// Reads one object, or its status, which is part of it.
pub(super) async fn get<K: Kind>(
    State(api): State<Arc<Api>>,
    Path(names): Names,
    Query(query): Query<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let form = accept::form(&headers)?;
    let key = key_of(&names);
    let object = find::<K>(&api, &key)
        .await?
        .ok_or_else(|| Failure::not_found::<K>(&key.name))?;
    let value = value(&object)?;
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

/// Why an app is as it is.
pub(super) async fn explain(
    State(api): State<Arc<Api>>,
    Path(names): Names,
) -> Result<Response, Failure> {
    let key = key_of(&names);
    told(&api, &key, api.insight.explain(&key.namespace, &key.name)).await
}

/// How the app's last wakes went.
pub(super) async fn wakes(
    State(api): State<Arc<Api>>,
    Path(names): Names,
) -> Result<Response, Failure> {
    let key = key_of(&names);
    told(&api, &key, api.insight.wakes(&key.namespace, &key.name)).await
}

async fn told(api: &Api, key: &Key, told: Option<Value>) -> Result<Response, Failure> {
    if let Some(told) = told {
        return Ok(Json(told).into_response());
    }
    Err(match find::<App>(api, key).await? {
        Some(_) => Failure::not_yet::<App>(&key.name),
        None => Failure::not_found::<App>(&key.name),
    })
}

/// The object with this key, if it exists.
pub(super) async fn find<K: Kind>(api: &Api, key: &Key) -> Result<Option<K>, Failure> {
    api.client
        .get(key)
        .await
        .map_err(|error| Failure::of_client::<K>(&error, key))
}

/// An object as JSON.
pub(super) fn value<K: Kind>(object: &K) -> Result<Value, Failure> {
    serde_json::to_value(object)
        .map_err(|error| Failure::bad_request(format!("cannot be written as JSON: {error}")))
}
