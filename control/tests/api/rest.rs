//! The REST API with the `kube` crate as its client.

use crate::client::request;
use crate::world::{World, manifest};
use dormouse_cluster::{App, AppStatus, Guard, Key, State};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};

fn app(value: Value) -> App {
    serde_json::from_value(value).unwrap()
}

fn refused(error: kube::Error) -> kube::core::Status {
    match error {
        kube::Error::Api(status) => *status,
        other => panic!("not refused by the server: {other}"),
    }
}

fn cause(status: &kube::core::Status) -> (&str, &str) {
    let cause = &status.details.as_ref().unwrap().causes[0];
    (&cause.field, &cause.message)
}

#[tokio::test]
async fn an_app_is_created_read_listed_updated_and_deleted() {
    let world = World::start().await;
    let apps: Api<App> = Api::namespaced(world.kube(), "shop");
    let made = apps
        .create(&PostParams::default(), &app(manifest("web")))
        .await
        .unwrap();
    assert_eq!(made.spec.vip, Some("fd00:10::10".parse().unwrap()));
    assert_eq!(made.spec.container.name, "app");
    assert!(made.uid().is_some() && made.creation_timestamp().is_some());

    let read = apps.get("web").await.unwrap();
    assert_eq!(read, made);
    assert_eq!(
        apps.list(&ListParams::default()).await.unwrap().items,
        vec![made.clone()]
    );
    let elsewhere: Api<App> = Api::namespaced(world.kube(), "other");
    assert!(
        elsewhere
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );

    let mut wanted = read.clone();
    wanted.spec.scale.max = Some(3);
    let changed = apps
        .replace("web", &PostParams::default(), &wanted)
        .await
        .unwrap();
    assert_eq!(
        (changed.spec.scale.max, changed.metadata.generation),
        (Some(3), Some(2))
    );
    let late = apps
        .replace("web", &PostParams::default(), &wanted)
        .await
        .unwrap_err();
    assert_eq!(refused(late).reason, "Conflict");

    apps.delete("web", &DeleteParams::default()).await.unwrap();
    assert_eq!(
        refused(apps.get("web").await.unwrap_err()).reason,
        "NotFound"
    );
    let key = Key::new("shop", "web");
    assert!(world.store.get::<App>(&key).await.unwrap().is_none());
}

#[tokio::test]
async fn a_vip_belongs_to_one_app_until_it_is_deleted() {
    let world = World::start().await;
    let apps: Api<App> = Api::namespaced(world.kube(), "shop");
    let with_vip = |name: &str, vip: &str| {
        let mut value = manifest(name);
        value["spec"]["vip"] = json!(vip);
        app(value)
    };
    let create = async |app: &App| apps.create(&PostParams::default(), app).await;
    create(&with_vip("a", "fd00:10::10")).await.unwrap();

    let taken = refused(create(&with_vip("b", "fd00:10::10")).await.unwrap_err());
    assert_eq!(
        (taken.reason.as_str(), cause(&taken).0),
        ("Invalid", "spec.vip")
    );
    assert!(
        cause(&taken)
            .1
            .contains("belongs to app shop/a: choose another"),
        "{}",
        cause(&taken).1
    );
    assert_eq!(refused(apps.get("b").await.unwrap_err()).reason, "NotFound");

    let outside = refused(create(&with_vip("b", "fd00:11::1")).await.unwrap_err());
    assert!(
        cause(&outside)
            .1
            .contains("outside this cluster's VIP ranges (fd00:10::/108)")
    );

    // The lowest free VIP is the one after the VIP of `a`.
    let given = create(&app(manifest("c"))).await.unwrap();
    assert_eq!(given.spec.vip, Some("fd00:10::11".parse().unwrap()));
    apps.delete("a", &DeleteParams::default()).await.unwrap();
    create(&with_vip("b", "fd00:10::10")).await.unwrap();

    let twice = refused(create(&app(manifest("c"))).await.unwrap_err());
    assert_eq!(twice.reason, "AlreadyExists");
}

#[tokio::test]
async fn apps_created_concurrently_get_different_vips() {
    let world = World::start().await;
    let creations = (0..20).map(|number| {
        let apps: Api<App> = Api::namespaced(world.kube(), "shop");
        async move {
            apps.create(
                &PostParams::default(),
                &app(manifest(&format!("app-{number}"))),
            )
            .await
            .unwrap()
            .spec
            .vip
        }
    });
    let mut vips = futures::future::join_all(creations).await;
    vips.sort();
    vips.dedup();
    assert_eq!(vips.len(), 20);
    assert_eq!(vips.last().unwrap().unwrap().to_string(), "fd00:10::23");
}

#[tokio::test]
async fn an_invalid_field_is_named_and_nothing_is_stored() {
    let world = World::start().await;
    let apps: Api<kube::core::DynamicObject> = Api::namespaced_with(
        world.kube(),
        "shop",
        &kube::core::ApiResource::erase::<App>(&()),
    );
    let mut attempts = Vec::new();
    for (pointer, value, field) in [
        ("/spec/replicas", json!(2), "spec.replicas"),
        (
            "/spec/container/comand",
            json!(["x"]),
            "spec.container.comand",
        ),
        ("/spec/port", json!(0), "spec.port"),
        ("/spec/port", json!(6443), "spec.port"),
        ("/spec/scale/window", json!("six"), "spec.scale.window"),
        (
            "/spec/container/command",
            json!([]),
            "spec.container.command",
        ),
        ("/spec/timeout", json!(5), "spec.timeout"),
        ("/metadata/name", json!("Web"), "metadata.name"),
    ] {
        let mut wrong = manifest("web");
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        wrong.pointer_mut(parent).unwrap()[name] = value;
        attempts.push((wrong, field));
    }
    for (wrong, field) in attempts {
        let object = serde_json::from_value(wrong).unwrap();
        let status = refused(
            apps.create(&PostParams::default(), &object)
                .await
                .unwrap_err(),
        );
        assert_eq!(
            (status.code, status.reason.as_str(), cause(&status).0),
            (422, "Invalid", field)
        );
    }
    assert!(
        apps.list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert_eq!(world.written().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_apply_creates_then_updates_then_changes_nothing() {
    let world = World::start().await;
    let apps: Api<App> = Api::namespaced(world.kube(), "shop");
    let apply = async |value: &Value| {
        apps.patch("web", &PatchParams::apply("test"), &Patch::Apply(value))
            .await
            .unwrap()
    };
    let mut wanted = manifest("web");
    wanted["metadata"]["labels"] = json!({"tier": "front"});
    let made = apply(&wanted).await;
    assert_eq!(
        apply(&wanted).await.resource_version(),
        made.resource_version()
    );
    wanted["metadata"]["labels"] = json!({});
    wanted["spec"]["scale"]["max"] = json!(7);
    let changed = apply(&wanted).await;
    assert_eq!(
        (
            changed.spec.scale.max,
            changed.labels().len(),
            changed.spec.vip
        ),
        (Some(7), 0, made.spec.vip)
    );
    let patch = json!({"spec": {"vip": "fd00:10::99"}});
    let moved = apps
        .patch("web", &PatchParams::default(), &Patch::Merge(patch))
        .await;
    assert!(
        cause(&refused(moved.unwrap_err()))
            .1
            .contains("is immutable")
    );
}

#[tokio::test]
async fn a_write_of_the_status_changes_only_the_status() {
    let world = World::start().await;
    let apps: Api<App> = Api::namespaced(world.kube(), "shop");
    apps.create(&PostParams::default(), &app(manifest("web")))
        .await
        .unwrap();
    let patch = json!({"spec": {"port": 81}, "status": {"state": "Awake", "ready": 2}});
    let app = apps
        .patch_status("web", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    let status = app.status.unwrap();
    assert_eq!(
        (
            status.state,
            status.ready,
            app.spec.port,
            app.metadata.generation
        ),
        (State::Awake, 2, 80, Some(1))
    );
    let patch = json!({"status": {"ready": 9}, "spec": {"port": 82}});
    let app = apps
        .patch("web", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    assert_eq!((app.spec.port, app.status.unwrap().ready), (82, 2));
}

#[tokio::test]
async fn a_watch_delivers_every_change_after_its_revision() {
    let world = World::start().await;
    let apps: Api<App> = Api::namespaced(world.kube(), "shop");
    let revision = apps
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let made = apps
        .create(&PostParams::default(), &app(manifest("web")))
        .await
        .unwrap();
    // The controller writes to the store directly; watches of the API deliver that, too.
    let mut written = made.clone();
    written.status = Some(AppStatus {
        ready: 5,
        ..AppStatus::default()
    });
    world
        .store
        .update(
            written,
            &Guard::at(made.resource_version().unwrap().parse().unwrap()),
        )
        .await
        .unwrap();
    apps.delete("web", &DeleteParams::default()).await.unwrap();
    let changes = apps
        .watch(&WatchParams::default().timeout(10), &revision)
        .await
        .unwrap();
    let mut changes = std::pin::pin!(changes);
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(
            match changes
                .try_next()
                .await
                .unwrap()
                .expect("the watch ended early")
            {
                WatchEvent::Added(app) => ("added", app.status.unwrap().ready),
                WatchEvent::Modified(app) => ("modified", app.status.unwrap().ready),
                WatchEvent::Deleted(app) => ("deleted", app.status.unwrap().ready),
                other => panic!("{other:?}"),
            },
        );
    }
    assert_eq!(seen, [("added", 0), ("modified", 5), ("deleted", 5)]);
}

#[tokio::test]
async fn selectors_select_the_listed_objects() {
    let world = World::start().await;
    let pods: Api<Pod> = Api::namespaced(world.kube(), "shop");
    for (name, node, tier) in [
        ("a", "n1", "front"),
        ("b", "n2", "front"),
        ("c", "n1", "back"),
    ] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"tier": tier}},
            "spec": {"nodeName": node, "containers": [{"name": "app", "command": ["x"]}]}});
        pods.create(
            &PostParams::default(),
            &serde_json::from_value(pod).unwrap(),
        )
        .await
        .unwrap();
    }
    let names = async |params: ListParams| {
        pods.list(&params)
            .await
            .unwrap()
            .items
            .iter()
            .map(ResourceExt::name_any)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(ListParams::default().fields("spec.nodeName=n1")).await,
        ["a", "c"]
    );
    assert_eq!(
        names(
            ListParams::default()
                .labels("tier=front")
                .fields("spec.nodeName=n1")
        )
        .await,
        ["a"]
    );
    let nodes: Api<Node> = Api::all(world.kube());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    nodes
        .create(
            &PostParams::default(),
            &serde_json::from_value(node).unwrap(),
        )
        .await
        .unwrap();
    assert_eq!(nodes.get("n1").await.unwrap().name_any(), "n1");
}

#[tokio::test]
async fn a_namespace_is_created_from_protobuf_as_kubectl_sends_it() {
    let world = World::start().await;
    // The envelope with apiVersion and kind, the object with its name, and the empty spec and status that typed clients send.
    let object = b"\x0a\x06\x0a\x04shop\x12\x00\x1a\x00";
    let mut body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12".to_vec();
    body.push(u8::try_from(object.len()).unwrap());
    body.extend(object);
    body.extend(b"\x1a\x00\x22\x00");
    let request = http::Request::post("/api/v1/namespaces")
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .header(
            "accept",
            "application/vnd.kubernetes.protobuf,application/json",
        )
        .body(body)
        .unwrap();
    let created = world.kube().request::<Value>(request).await.unwrap();
    assert_eq!(created["metadata"]["name"], "shop");
    assert_eq!(created["status"]["phase"], "Active");
}

#[tokio::test]
async fn protobuf_is_refused() {
    let world = World::start().await;
    let of_media = |method: &str, header: &str, media: &str| {
        let uri = "/apis/dormouse.dev/v1alpha1/namespaces/shop/apps";
        http::Request::builder()
            .method(method)
            .uri(uri)
            .header(header, media)
            .body(vec![])
            .unwrap()
    };
    let protobuf = "application/vnd.kubernetes.protobuf";
    let read = world
        .kube()
        .request::<Value>(of_media("GET", "accept", protobuf))
        .await
        .unwrap_err();
    let written = world
        .kube()
        .request::<Value>(of_media("POST", "content-type", protobuf))
        .await
        .unwrap_err();
    assert_eq!((refused(read).code, refused(written).code), (406, 415));
}

#[tokio::test]
async fn a_malformed_object_or_another_kind_is_refused() {
    let world = World::start().await;
    let post = async |body: &str| {
        let uri = "/apis/dormouse.dev/v1alpha1/namespaces/shop/apps";
        let request = http::Request::post(uri)
            .header("content-type", "application/json")
            .body(body.as_bytes().to_vec());
        refused(
            world
                .kube()
                .request::<Value>(request.unwrap())
                .await
                .unwrap_err(),
        )
    };
    for (body, want) in [
        ("{", "the body is not JSON"),
        (
            "[]",
            "this path requires apiVersion dormouse.dev/v1alpha1, kind App",
        ),
        (
            r#"{"apiVersion": "v1", "kind": "Pod"}"#,
            "this path requires",
        ),
        (
            r#"{"apiVersion": "dormouse.dev/v1alpha1", "kind": "App"}"#,
            "no metadata",
        ),
    ] {
        let status = post(body).await;
        assert_eq!(status.reason, "BadRequest");
        assert!(status.message.contains(want), "{}", status.message);
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_with_a_status() {
    let world = World::start().await;
    let apps: Api<App> = Api::namespaced(world.kube(), "shop");
    let mut large = app(manifest("web"));
    large.spec.container.command = Some(vec!["x".repeat(4 << 20)]);
    let status = refused(
        apps.create(&PostParams::default(), &large)
            .await
            .unwrap_err(),
    );
    assert_eq!(
        (status.code, status.reason.as_str()),
        (413, "RequestEntityTooLarge")
    );
}

#[tokio::test]
async fn a_write_with_an_unknown_kind_of_dry_run_is_refused() {
    let world = World::start().await;
    let pods = "/api/v1/namespaces/shop/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "a", "command": ["x"]}]}});
    let made = request(&world, "", &format!("POST {pods}"), &pod).await;
    assert_eq!(made.0, 201);
    let key = Key::new("shop", "web");
    let before = world.store.get::<Pod>(&key).await.unwrap();

    let label = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"a": "b"}}});
    let mut other = pod.clone();
    other["metadata"]["name"] = json!("other");
    let mut labelled = pod;
    labelled["metadata"] = label["metadata"].clone();
    let options = json!({"dryRun": ["all"]});
    let both = json!({"dryRun": ["All", "Server"]});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "web"}, "deleteOptions": options});
    for (what, body, kind) in [
        (format!("POST {pods}?dryRun=all"), &other, "CreateOptions"),
        (format!("POST {pods}?dryRun="), &other, "CreateOptions"),
        (
            format!("PUT {pods}/web?dryRun=true"),
            &labelled,
            "UpdateOptions",
        ),
        (
            format!("PATCH {pods}/web?dryRun=Server"),
            &label,
            "PatchOptions",
        ),
        (format!("APPLY {pods}/web?dryRun=1"), &label, "PatchOptions"),
        (
            format!("PATCH {pods}/web/status?dryRun=x"),
            &label,
            "PatchOptions",
        ),
        (
            format!("DELETE {pods}/web?dryRun=all"),
            &Value::Null,
            "DeleteOptions",
        ),
        (format!("DELETE {pods}/web"), &options, "DeleteOptions"),
        (format!("DELETE {pods}/web"), &both, "DeleteOptions"),
        (
            format!("POST {pods}/web/eviction"),
            &eviction,
            "DeleteOptions",
        ),
    ] {
        let (code, status) = request(&world, "", &what, body).await;
        let message = status["message"].as_str().unwrap();
        let want = format!("{kind}.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: ");
        assert!(
            code == 422 && message.starts_with(&want),
            "{what}: {status}"
        );
    }
    assert_eq!(world.store.get::<Pod>(&key).await.unwrap(), before);
    assert_eq!(world.written().await.len(), 1);

    let all = json!({"dryRun": ["All"]});
    let dry = request(&world, "", &format!("DELETE {pods}/web"), &all).await;
    assert_eq!(dry.0, 200);
    assert_eq!(world.store.get::<Pod>(&key).await.unwrap(), before);
}

#[tokio::test]
async fn a_patch_that_copies_more_than_the_limit_is_refused() {
    let world = World::start().await;
    let pods = "/api/v1/namespaces/shop/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "annotations": {"text": "x".repeat(100_000)}},
        "spec": {"containers": [{"name": "a", "command": ["x"]}]}});
    let made = request(&world, "", &format!("POST {pods}"), &pod).await;
    assert_eq!(made.0, 201);
    let copies: Vec<Value> = (0..24)
        .map(|number| json!({"op": "copy", "from": "", "path": format!("/copy{number}")}))
        .collect();
    let (code, status) = request(&world, "", &format!("JSON {pods}/web"), &json!(copies)).await;
    assert_eq!(
        (code, &status["reason"]),
        (413, &json!("RequestEntityTooLarge"))
    );
}

#[tokio::test]
async fn of_a_pod_an_update_changes_no_more_than_kubernetes_allows() {
    let world = World::start().await;
    let pods = "/api/v1/namespaces/shop/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "one", "command": ["x"]}]}});
    let made = request(&world, "", &format!("POST {pods}"), &pod).await;
    assert_eq!(made.0, 201);
    let changed = |pointer: &str, value: Value| {
        let mut pod = pod.clone();
        *pod.pointer_mut(pointer).unwrap() = value;
        pod
    };
    for wrong in [
        changed("/spec/nodeName", json!("n2")),
        changed("/spec/nodeName", Value::Null),
        changed("/spec/containers/0/command", json!(["y"])),
    ] {
        for method in ["PUT", "PATCH"] {
            let (code, status) = request(&world, "", &format!("{method} {pods}/web"), &wrong).await;
            let message = status["message"].as_str().unwrap();
            assert!(
                code == 422 && message.contains("may not change fields"),
                "{status}"
            );
        }
    }
    let image = changed("/spec/containers/0/image", json!("two"));
    let (code, _) = request(&world, "", &format!("PUT {pods}/web"), &image).await;
    assert_eq!(code, 200);
    let mut forged = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let what = format!("PATCH {pods}/web");
    let (code, same) = request(&world, "", &what, &forged).await;
    assert_eq!(
        (code, &same["metadata"]["deletionTimestamp"]),
        (200, &Value::Null)
    );
    forged["status"] = json!({"phase": "Running"});
    let (code, running) = request(&world, "", &format!("PATCH {pods}/web/status"), &forged).await;
    assert_eq!(
        (code, &running["status"]["phase"]),
        (200, &json!("Running"))
    );
    assert_eq!(running["metadata"]["deletionTimestamp"], Value::Null);
}
