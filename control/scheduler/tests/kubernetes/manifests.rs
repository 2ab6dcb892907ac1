//! The manifests of `deploy/scheduler`: what Kubernetes accepts, names that tie up, and exactly the rights that are used.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_scheduler::{Election, Profile, WEBHOOK_PATH};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{PODS, World, pod};
use crate::server::Asked;

const NAME: &str = "dormouse-scheduler";
const NAMESPACE: &str = "kube-system";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/scheduler")
}

/// The documents of a file.
fn documents(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join(path)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The objects of the files that a kustomization names; also those of its patches.
fn objects(part: &str) -> Vec<Value> {
    let kustomization = documents(&format!("{part}/kustomization.yaml")).remove(0);
    let resources = kustomization["resources"].as_array().unwrap().iter();
    let patches = kustomization["patches"].as_array().into_iter().flatten();
    let files = resources.chain(patches.map(|patch| &patch["path"]));
    let files: Vec<_> = files.map(|file| file.as_str().unwrap()).collect();
    let all = std::fs::read_dir(folder().join(part)).unwrap().count();
    assert_eq!(files.len() + 1, all, "{part}: a file is not named");
    let files = files.into_iter().map(|file| format!("{part}/{file}"));
    files.flat_map(|file| documents(&file)).collect()
}

fn only<T: DeserializeOwned>(objects: &[Value], kind: &str) -> T {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let one = found.next().unwrap().clone();
    assert!(found.next().is_none(), "{kind}");
    serde_json::from_value(one).unwrap()
}

/// Fails unless the type has all fields of the object, and of these types.
fn strictly<T: DeserializeOwned + Serialize>(object: &Value) {
    let read: T = serde_json::from_value(object.clone())
        .unwrap_or_else(|error| panic!("{error}: {object:#}"));
    let kept = serde_json::to_value(read).unwrap();
    assert!(
        has(&kept, object),
        "{object:#} has fields that {kept:#} has not"
    );
}

/// Whether a value has all that another one has.
fn has(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            let mut fields = part.iter();
            fields.all(|(name, value)| whole.get(name).is_some_and(|other| has(other, value)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(one, other)| has(one, other))
        }
        _ => whole == part,
    }
}

#[test]
fn every_manifest_is_one_that_kubernetes_accepts() {
    for object in objects("base").into_iter().chain(objects("webhook")) {
        match object["kind"].as_str().unwrap() {
            "ServiceAccount" => strictly::<ServiceAccount>(&object),
            "ClusterRole" => strictly::<ClusterRole>(&object),
            "ClusterRoleBinding" => strictly::<ClusterRoleBinding>(&object),
            "Role" => strictly::<Role>(&object),
            "RoleBinding" => strictly::<RoleBinding>(&object),
            "ConfigMap" => strictly::<ConfigMap>(&object),
            "Service" => strictly::<Service>(&object),
            "ValidatingWebhookConfiguration" => strictly::<ValidatingWebhookConfiguration>(&object),
            // A patch lacks required fields of the type.
            "Deployment" if object["spec"]["selector"].is_null() => {}
            "Deployment" => strictly::<Deployment>(&object),
            other => panic!("{other} is not known to this test"),
        }
        assert_eq!(object["metadata"]["name"], NAME);
        let namespace = &object["metadata"]["namespace"];
        let is_cluster_scoped = object["kind"].as_str().unwrap().starts_with("Cluster")
            || object["kind"] == "ValidatingWebhookConfiguration";
        assert_eq!(namespace.is_null(), is_cluster_scoped, "{}", object["kind"]);
        assert!(is_cluster_scoped || namespace == NAMESPACE);
    }
}

#[test]
fn the_webhook_reaches_the_port_of_the_pods_and_never_stops_a_pod() {
    let (base, more) = (objects("base"), objects("webhook"));
    let webhook: ValidatingWebhookConfiguration = only(&more, "ValidatingWebhookConfiguration");
    let webhook = webhook.webhooks.unwrap().remove(0);
    assert_eq!(webhook.failure_policy.as_deref(), Some("Ignore"));
    let called = webhook.client_config.service.unwrap();
    assert_eq!(called.path.as_deref(), Some(WEBHOOK_PATH));
    let service: Service = only(&more, "Service");
    assert_eq!(
        (called.name.as_str(), called.namespace.as_str()),
        (NAME, NAMESPACE)
    );
    let spec = service.spec.unwrap();
    let port = spec.ports.unwrap().remove(0);
    assert_eq!(called.port, Some(port.port));
    let deployment: Deployment = only(&base, "Deployment");
    let template = deployment.spec.unwrap().template.metadata.unwrap();
    assert_eq!(
        spec.selector,
        template.labels.map(|mut labels| {
            labels.remove("app.kubernetes.io/part-of");
            labels
        })
    );
    let patch = more
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .unwrap();
    let container = &patch["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["ports"][0]["name"], "webhook");
    let listen = container["env"][0]["value"].as_str().unwrap();
    assert!(listen.ends_with(&container["ports"][0]["containerPort"].to_string()));
}

#[test]
fn the_configuration_has_the_profile_whose_pods_the_webhook_sends() {
    let map: ConfigMap = only(&objects("base"), "ConfigMap");
    let text = &map.data.unwrap()["scheduler.yaml"];
    let document: Value = serde_saphyr::from_str(text).unwrap();
    let profiles = Profile::parse_configuration(&document).unwrap();
    assert_eq!(profiles[0].name(), NAME);
    let webhook = documents("webhook/webhook.yaml").remove(0);
    let condition = webhook["webhooks"][0]["matchConditions"][0]["expression"].to_string();
    assert!(condition.contains(&format!("'{NAME}'")), "{condition}");
}

/// A verb on a resource of a group.
type Right = (String, String, String);

fn granted() -> BTreeSet<Right> {
    let objects = objects("base");
    let role: ClusterRole = only(&objects, "ClusterRole");
    let leases: Role = only(&objects, "Role");
    let rules = role.rules.unwrap().into_iter().chain(leases.rules.unwrap());
    let mut granted = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    let right = (group.clone(), resource.clone(), verb.clone());
                    assert!(granted.insert(right), "{resource} {verb} is granted twice");
                }
            }
        }
    }
    granted
}

fn right(asked: &Asked) -> Right {
    let place = &asked.place;
    let parts: Vec<_> = place.collection.split('/').skip(1).collect();
    let (group, resource) = match &parts[..] {
        ["api", _, resource] => ("", *resource),
        ["apis", group, _, resource] => (*group, *resource),
        other => panic!("{other:?}"),
    };
    let resource = match &place.part {
        Some(part) => format!("{resource}/{part}"),
        None => resource.to_owned(),
    };
    let verb = match (asked.method.as_str(), place.name.is_some(), asked.watches) {
        ("GET", _, true) => "watch",
        ("GET", false, false) => "list",
        ("GET", true, false) => "get",
        ("POST", ..) => "create",
        ("PUT", ..) => "update",
        ("PATCH", ..) => "patch",
        ("DELETE", ..) => "delete",
        other => panic!("{other:?}"),
    };
    (group.to_owned(), resource, verb.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_roles_grant_the_requests_of_the_scheduler_and_no_other() {
    let election = Election {
        namespace: NAMESPACE.to_owned(),
        name: NAME.to_owned(),
    };
    let world = World::with(Some(election), Vec::new()).await;
    world.node("n1", 1);
    world.api.put(PODS, &pod("low", &json!({})));
    world.bound("low").await;
    world.api.put(PODS, &pod("late", &json!({})));
    let asked = || world.api.asked().iter().map(right).collect::<BTreeSet<_>>();
    let event = |verb: &str| {
        (
            "events.k8s.io".to_owned(),
            "events".to_owned(),
            verb.to_owned(),
        )
    };
    let status = "pods/late/status";
    world
        .api
        .until("it waits", |api| !api.writes(status).is_empty())
        .await;
    // The same event again. A room that goes and comes back between two looks of the scheduler is none, so it does until then.
    let changes = async {
        let mut pause = tokio::time::interval(Duration::from_millis(100));
        for room in [0, 1].into_iter().cycle() {
            pause.tick().await;
            world.node("n1", room);
        }
    };
    let is_repeated = |_: &_| asked().contains(&event("patch"));
    tokio::select! {
        () = world.api.until("a repeated event", is_repeated) => {}
        () = changes => {}
    }
    world.node("n1", 1);
    world.api.put(PODS, &pod("high", &json!({"priority": 9})));
    world.bound("high").await;
    // A scheduler renews its Lease every two seconds.
    world
        .api
        .until("all rights", |_| asked().is_superset(&granted()))
        .await;
    assert_eq!(asked(), granted());
}
