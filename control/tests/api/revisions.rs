//! The revisions that changes of an app's template make.

use crate::world::{World, manifest};
use dormouse_cluster::{App, Revision};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

struct Apps {
    apps: Api<App>,
    revisions: Api<Revision>,
}

impl Apps {
    async fn with_app(world: &World, name: &str) -> Self {
        let apps = Api::namespaced(world.kube(), "shop");
        let revisions = Api::namespaced(world.kube(), "shop");
        let app: App = serde_json::from_value(manifest(name)).unwrap();
        apps.create(&PostParams::default(), &app).await.unwrap();
        Self { apps, revisions }
    }

    /// Patches the spec of an app; returns the number of its revision.
    async fn patch(&self, name: &str, spec: &Value) -> Option<u32> {
        let patch = Patch::Merge(json!({"spec": spec}));
        let patched = self.apps.patch(name, &PatchParams::default(), &patch).await;
        patched.unwrap().status.unwrap().revision
    }

    async fn image(&self, name: &str, image: &str) -> Option<u32> {
        self.patch(name, &json!({"container": {"image": image}}))
            .await
    }

    async fn names(&self) -> Vec<String> {
        let list = self.revisions.list(&ListParams::default()).await.unwrap();
        list.items
            .into_iter()
            .map(|one| one.metadata.name.unwrap())
            .collect()
    }
}

#[tokio::test]
async fn an_app_has_revisions_from_its_second_template_on_and_they_end_with_it() {
    let world = World::start().await;
    let apps = Apps::with_app(&world, "web").await;
    assert_eq!(apps.patch("web", &json!({"scale": {"max": 9}})).await, None);
    assert!(
        apps.names().await.is_empty(),
        "one template needs no revision"
    );
    assert_eq!(apps.image("web", "b").await, Some(2));
    assert_eq!(apps.names().await, ["web-1", "web-2"]);
    assert_eq!(apps.image("web", "b").await, Some(2));
    assert_eq!(apps.image("web", "c").await, Some(3));
    assert_eq!(
        apps.image("web", "b").await,
        Some(2),
        "an equal template makes none"
    );
    assert_eq!(apps.names().await, ["web-1", "web-2", "web-3"]);
    let app = apps.apps.get("web").await.unwrap();
    let owner = apps
        .revisions
        .get("web-3")
        .await
        .unwrap()
        .metadata
        .owner_references
        .unwrap();
    assert_eq!(Some(owner[0].uid.clone()), app.metadata.uid);
    apps.apps
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    assert!(apps.names().await.is_empty());
}

#[tokio::test]
async fn apps_whose_names_begin_alike_have_histories_of_their_own() {
    let world = World::start().await;
    let apps = Apps::with_app(&world, "web").await;
    let other = Apps::with_app(&world, "web-1").await;
    apps.image("web", "b").await;
    assert_eq!(other.image("web-1", "b").await, Some(2));
    assert_eq!(apps.names().await, ["web-1", "web-1-1", "web-1-2", "web-2"]);
    assert_eq!(apps.image("web", "c").await, Some(3));
    apps.apps
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(apps.names().await, ["web-1-1", "web-1-2"]);
}

#[tokio::test]
async fn a_revision_is_immutable_and_no_client_creates_one() {
    let world = World::start().await;
    let apps = Apps::with_app(&world, "web").await;
    apps.image("web", "b").await;
    let mut revision = apps.revisions.get("web-1").await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"template": {"container": {"image": "x"}}}}));
    let refused = apps
        .revisions
        .patch("web-1", &PatchParams::default(), &patch)
        .await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("spec: is immutable"), "{message}");
    revision.metadata.name = Some("web-9".to_owned());
    revision.metadata.resource_version = None;
    let refused = apps
        .revisions
        .create(&PostParams::default(), &revision)
        .await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("apply the app"), "{message}");
    let label = Patch::Merge(json!({"metadata": {"labels": {"good": "yes"}}}));
    apps.revisions
        .patch("web-1", &PatchParams::default(), &label)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_history_has_a_limit() {
    let world = World::start().await;
    let apps = Apps::with_app(&world, "web").await;
    apps.patch("web", &json!({"revisionHistoryLimit": 2})).await;
    for image in ["b", "c", "d", "e"] {
        apps.image("web", image).await;
    }
    assert_eq!(apps.names().await, ["web-3", "web-4", "web-5"]);
}
