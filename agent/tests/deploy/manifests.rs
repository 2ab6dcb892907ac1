//! The files of `deploy/node`, parsed strictly: a field that the type does not have fails.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The folder of the node's manifests.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/node")
}

/// The file of a kustomization.
const KUSTOMIZATION: &str = "kustomization.yaml";

/// A kustomization, as far as these use it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kustomization {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    patches: Vec<Patch>,
}

/// A patch that is merged into the object of its kind and name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    path: String,
}

/// The documents of a file.
pub(crate) fn documents(path: &Path) -> Vec<Value> {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let read = serde_saphyr::from_multiple::<Value>(&text);
    read.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The objects of the base.
pub(crate) fn base() -> Vec<Value> {
    let folder = folder().join("base");
    let resources = kustomization(&folder).resources;
    resources
        .iter()
        .flat_map(|name| documents(&folder.join(name)))
        .collect()
}

/// The only object of a kind in the base, typed.
pub(crate) fn only<T: DeserializeOwned>(kind: &str) -> T {
    let mut found = base();
    found.retain(|object| object["kind"] == kind);
    assert_eq!(found.len(), 1, "{kind}");
    serde_json::from_value(found.remove(0)).unwrap()
}

/// The kustomizations beside the base: overlays, and components.
pub(crate) fn beside() -> Vec<PathBuf> {
    let overlays = fs::read_dir(folder().join("overlays")).unwrap();
    let mut folders: Vec<_> = overlays.map(|entry| entry.unwrap().path()).collect();
    folders.push(folder().join("monitoring"));
    folders.sort();
    folders
}

fn kustomization(folder: &Path) -> Kustomization {
    let mut read = documents(&folder.join(KUSTOMIZATION));
    assert_eq!(read.len(), 1, "{}", folder.display());
    serde_json::from_value(read.remove(0))
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// Fails unless the type has all fields of the object, and of these types.
fn strictly<T: DeserializeOwned + Serialize>(object: &Value) {
    let read: T = serde_json::from_value(object.clone())
        .unwrap_or_else(|error| panic!("{error}: {object:#}"));
    let kept = serde_json::to_value(read).unwrap();
    let lost = lost(object, &kept, "");
    assert!(lost.is_empty(), "unknown fields: {lost:?}");
}

/// The paths of an object's values that another does not have.
fn lost(object: &Value, kept: &Value, path: &str) -> Vec<String> {
    match (object, kept) {
        (Value::Object(fields), Value::Object(_)) => fields
            .iter()
            .flat_map(|(name, value)| lost(value, &kept[name], &format!("{path}.{name}")))
            .collect(),
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => items
            .iter()
            .zip(others)
            .flat_map(|(item, other)| lost(item, other, &format!("{path}[]")))
            .collect(),
        _ if object == kept => Vec::new(),
        _ => vec![path.to_owned()],
    }
}

fn check(object: &Value) {
    let (version, kind) = (&object["apiVersion"], &object["kind"]);
    let version = version.as_str().unwrap();
    match (version, kind.as_str().unwrap()) {
        ("v1", "Namespace") => strictly::<Namespace>(object),
        ("v1", "ServiceAccount") => strictly::<ServiceAccount>(object),
        ("v1", "ConfigMap") => strictly::<ConfigMap>(object),
        ("v1", "Service") => strictly::<Service>(object),
        ("apps/v1", "DaemonSet") => strictly::<DaemonSet>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => strictly::<ClusterRole>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => {
            strictly::<ClusterRoleBinding>(object);
        }
        // Its type is the Prometheus operator's.
        ("monitoring.coreos.com/v1", "ServiceMonitor") => {}
        other => panic!("{other:?} is not known to this test"),
    }
}

#[test]
fn every_manifest_is_one_that_kubernetes_accepts() {
    let base_folder = folder().join("base");
    for folder in beside().into_iter().chain([base_folder.clone()]) {
        let Kustomization {
            api_version,
            kind,
            namespace,
            resources,
            patches,
        } = kustomization(&folder);
        let expected = if folder.ends_with("monitoring") {
            ("kustomize.config.k8s.io/v1alpha1", "Component")
        } else {
            ("kustomize.config.k8s.io/v1beta1", "Kustomization")
        };
        assert_eq!((&*api_version, &*kind), expected, "{folder:?}");
        assert!(
            namespace.is_none_or(|name| name == "dormouse-system"),
            "{folder:?}"
        );
        let mut used = vec![KUSTOMIZATION.to_owned()];
        for name in resources {
            if name == "../../base" {
                continue;
            }
            documents(&folder.join(&name)).iter().for_each(check);
            used.push(name);
        }
        for Patch { path } in patches {
            for patch in documents(&folder.join(&path)) {
                check(&patch);
                let same = |object: &Value| {
                    ["apiVersion", "kind"].map(|key| &object[key])
                        == ["apiVersion", "kind"].map(|key| &patch[key])
                        && object["metadata"]["name"] == patch["metadata"]["name"]
                };
                assert!(base().iter().any(same), "{path} patches no object");
            }
            used.push(path);
        }
        let files = fs::read_dir(&folder).unwrap();
        for file in files {
            let name = file.unwrap().file_name().into_string().unwrap();
            assert!(used.contains(&name), "{folder:?} does not use {name}");
        }
    }
}

#[test]
fn an_unknown_field_is_found() {
    let object = serde_json::json!({"metadata": {"name": "n", "lables": {}}});
    let kept = serde_json::json!({"metadata": {"name": "n"}});
    assert_eq!(lost(&object, &kept, ""), [".metadata.lables"]);
}
