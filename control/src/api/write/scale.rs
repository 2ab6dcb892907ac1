//! The subresource `scale` of apps, for `kubectl scale`: `replicas` is the least number of pods, which load may raise.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use dormouse_autoscaler::Settings;
use dormouse_autoscaler::settings::Cluster;
use dormouse_cluster::App;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Subresource, WriteRequest, existing, update};
use crate::api::{Api, Failure, fields, patch::Patch, query::Names, storage};

/// Reads the scale of an app.
pub(crate) async fn read(State(api): State<Arc<Api>>, names: Names) -> Result<Response, Failure> {
    let app = existing::<App>(&api, &names.key()).await?;
    let cluster = api.insight.autoscaling();
    Ok(Json(scale(&storage::to_json(&app)?, &cluster)?).into_response())
}

/// Replaces the scale of an app.
pub(crate) async fn replace(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Response, Failure> {
    let (wanted, cluster) = (request.json()?, api.insight.autoscaling());
    let app = update::<App>(&api, &request, Subresource::Main, |app| {
        scaled(app, &wanted, &cluster)
    });
    Ok(Json(scale(&Box::pin(app).await?, &cluster)?).into_response())
}

/// Patches the scale of an app.
pub(crate) async fn patch(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Response, Failure> {
    let patch = Patch::parse(&request.headers, &request.body)?;
    let cluster = api.insight.autoscaling();
    let app = update::<App>(&api, &request, Subresource::Main, |app| {
        scaled(app, &patch.apply(&scale(app, &cluster)?)?, &cluster)
    });
    Ok(Json(scale(&Box::pin(app).await?, &cluster)?).into_response())
}

/// The settings in force of an app.
fn settings(app: &Value, cluster: &Cluster) -> Result<Settings, Failure> {
    let app = App::deserialize(app).map_err(|error| Failure::internal(&error.to_string()))?;
    Ok(app.autoscaling(cluster).settings)
}

/// The scale of an app, as `autoscaling/v1` has it.
fn scale(app: &Value, cluster: &Cluster) -> Result<Value, Failure> {
    let replicas = settings(app, cluster)?.min_scale;
    let name = fields::text(app, "metadata.name");
    let mut meta = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        meta[field] = app["metadata"][field].clone();
    }
    Ok(json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta,
        "spec": {"replicas": replicas},
        "status": {"replicas": app["status"]["ready"], "selector": format!("dormouse.dev/app={name}")},
    }))
}

/// The app with this scale. Its limit is raised if it is lower.
fn scaled(app: &Value, scale: &Value, cluster: &Cluster) -> Result<Value, Failure> {
    let replicas = match &scale["spec"]["replicas"] {
        // Go leaves out what is zero.
        Value::Null => Some(0),
        replicas => replicas.as_u64(),
    };
    let replicas = replicas
        .ok_or_else(|| Failure::bad_request("spec.replicas must be a number of at least 0"))?;
    let mut app = app.clone();
    let limit = u64::try_from(settings(&app, cluster)?.max_scale).unwrap_or(0);
    app["spec"]["scale"]["min"] = json!(replicas);
    if limit > 0 && limit < replicas {
        app["spec"]["scale"]["max"] = json!(replicas);
    }
    // The version that the client has read, if it names one.
    let version = fields::text(scale, "metadata.resourceVersion");
    if !version.is_empty() {
        app["metadata"]["resourceVersion"] = json!(version);
    }
    Ok(app)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knative() -> Cluster {
        Cluster::starting_asleep(0)
    }

    fn app() -> Value {
        json!({"apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
            "metadata": {"name": "web", "resourceVersion": "7"},
            "spec": {"container": {"name": "app"}, "scale": {"max": 3}}, "status": {"ready": 1}})
    }

    #[test]
    fn annotations_count_and_the_scale_wins_over_them() {
        let mut app = app();
        app["metadata"]["annotations"] = json!({
            "autoscaling.knative.dev/min-scale": "2", "autoscaling.knative.dev/max-scale": "2",
        });
        app["spec"]["scale"] = json!({});
        assert_eq!(scale(&app, &knative()).unwrap()["spec"]["replicas"], 2);
        let scaled = scaled(&app, &json!({"spec": {"replicas": 5}}), &knative()).unwrap();
        assert_eq!(scaled["spec"]["scale"], json!({"min": 5, "max": 5}));
        assert_eq!(scale(&scaled, &knative()).unwrap()["spec"]["replicas"], 5);
    }

    #[test]
    fn replicas_are_the_least_number_of_pods() {
        let scale = scale(&app(), &knative()).unwrap();
        assert_eq!(scale["spec"]["replicas"], 0);
        assert_eq!(
            scale["status"],
            json!({"replicas": 1, "selector": "dormouse.dev/app=web"})
        );
        for (replicas, max) in [(2, 3), (5, 5)] {
            let wanted = json!({"spec": {"replicas": replicas}});
            let scaled = scaled(&app(), &wanted, &knative()).unwrap();
            assert_eq!(
                scaled["spec"]["scale"],
                json!({"min": replicas, "max": max})
            );
            assert_eq!(scaled["metadata"]["resourceVersion"], "7");
        }
    }

    #[test]
    fn a_scale_without_replicas_is_refused_and_its_version_is_required() {
        assert!(scaled(&app(), &json!({"spec": {"replicas": -1}}), &knative()).is_err());
        let zero = scaled(&app(), &json!({"spec": {}}), &knative()).unwrap();
        assert_eq!(zero["spec"]["scale"]["min"], 0);
        let wanted = json!({"metadata": {"resourceVersion": "6"}, "spec": {"replicas": 1}});
        assert_eq!(
            scaled(&app(), &wanted, &knative()).unwrap()["metadata"]["resourceVersion"],
            "6"
        );
    }
}
