//! The autoscaler's settings as an operator and an app's owner set them: the ConfigMap and annotations, through the API, against a
//! running control plane.

use dormouse_cluster::{App, Key, Object, autoscaler_config};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::traffic::run;
use crate::world::{World, in_namespace, page, until};

/// Applies an app that sets nothing itself, with these annotations of the autoscaler.
async fn apply(name: &str, vip: u32, annotations: &[(&str, &str)]) -> Result<String, String> {
    let annotation = |(key, value): &(&str, &str)| {
        let key = format!("autoscaling.knative.dev/{key}");
        (key, Value::from(*value))
    };
    let annotations: serde_json::Map<_, _> = annotations.iter().map(annotation).collect();
    let app = json!({
        "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "vip": format!("fd00:10::{vip:x}"), "port": 18_080, "targetPort": 8000,
            "container": {"name": "app", "command": ["serve"]},
        },
    });
    run(&["apply", "-f", "-"], &app.to_string()).await
}

async fn configure(data: &Value) -> Result<String, String> {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "config-autoscaler", "namespace": "dormouse-system"}, "data": data,
    });
    run(&["apply", "-f", "-"], &map.to_string()).await
}

async fn wanted(world: &World, name: &str) -> u32 {
    let key = Key::new("default", name);
    let app: App = world.store().await.get(&key).await.unwrap().unwrap();
    app.status.map_or(0, |status| status.wanted)
}

async fn explained(name: &str) -> String {
    run(&["explain", "app", name], "").await.unwrap()
}

#[test]
fn the_config_map_changes_apps_asleep_and_awake_without_a_restart() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.control().await;
        apply("asleep", 1, &[]).await.unwrap();
        apply("awake", 2, &[("min-scale", "2")]).await.unwrap();
        until("the annotated minimum counts", async || {
            wanted(&world, "awake").await == 2
        })
        .await;
        assert_eq!(wanted(&world, "asleep").await, 0);
        configure(&json!({"min-scale": "1", "stable-window": "40s", "_example": "x"}))
            .await
            .unwrap();
        until("the sleeping app has its pod", async || {
            wanted(&world, "asleep").await == 1
        })
        .await;
        let text = explained("asleep").await;
        assert!(
            text.contains("min 1: ConfigMap config-autoscaler, min-scale"),
            "{text}"
        );
        let text = explained("awake").await;
        assert!(text.contains("min 2: annotation min-scale"), "{text}");
        assert!(
            text.contains("window 40s: ConfigMap config-autoscaler, stable-window"),
            "{text}"
        );
        apply("awake", 2, &[("min-scale", "3")]).await.unwrap();
        until("the changed annotation counts", async || {
            wanted(&world, "awake").await == 3
        })
        .await;
        let table = run(&["get", "configmaps", "-n", "dormouse-system"], "").await;
        assert!(table.unwrap().contains("config-autoscaler"));
        run(
            &[
                "delete",
                "configmap",
                "config-autoscaler",
                "-n",
                "dormouse-system",
            ],
            "",
        )
        .await
        .unwrap();
        until("the default counts again", async || {
            !explained("awake").await.contains("ConfigMap")
        })
        .await;
    });
}

#[test]
fn a_config_map_and_annotations_that_are_not_valid_are_refused_and_change_nothing() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.control().await;
        let error = apply("web", 1, &[("maxScale", "-1")]).await.unwrap_err();
        let field = "metadata.annotations.autoscaling.knative.dev/maxScale";
        assert!(error.contains(field), "{error}");
        let error = configure(&json!({"stable-window": "5s"}))
            .await
            .unwrap_err();
        assert!(error.contains("data.stable-window"), "{error}");
        configure(&json!({"stable-window": "50s", "max-scale-limit": "5", "max-scale": "5"}))
            .await
            .unwrap();
        apply("web", 1, &[("max-scale", "4")]).await.unwrap();
        let in_force = "window 50s: ConfigMap config-autoscaler, stable-window";
        until("the ConfigMap is in force", async || {
            explained("web").await.contains(in_force)
        })
        .await;
        let error = apply("web", 1, &[("max-scale", "6")]).await.unwrap_err();
        assert!(error.contains("max-scale-limit"), "{error}");
        // Another client of the store writes what the API refuses.
        let store = world.store().await;
        let key = autoscaler_config::key();
        let mut map: ConfigMap = store.get(&key).await.unwrap().unwrap();
        map.data = Some([("stable-window".to_owned(), "1s".to_owned())].into());
        let read = dormouse_cluster::Guard::at(map.revision());
        store.update(map, &read).await.unwrap();
        let metric = "dormouse_autoscaler_config_invalid 1";
        until("the metric reports it", async || {
            page("[::1]:9090", "/metrics")
                .await
                .unwrap()
                .contains(metric)
        })
        .await;
        assert!(explained("web").await.contains(in_force));
    });
}
