//! API discovery, in the unaggregated form that every client supports.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    response::{IntoResponse, Response},
    routing::get,
};
use dormouse_cluster::{App, Revision};
use http::{HeaderMap, header};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Event, Namespace, Node, Pod, Service},
    discovery::v1::EndpointSlice,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use serde_json::{Value, json};

use super::{Api, Kind, rights::review, trust};

/// The media type of the OpenAPI document for kubectl. kubectl requests `v2@v1.0`, which is not valid in a response's
/// media type; kube-apiserver responds with a dot, too.
const OPENAPI_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// An OpenAPI v2 document that describes nothing: `Document{swagger: "2.0", info: {title: "Dormouse", version: "v1"},
/// paths: {}}` (gnostic's openapiv2.proto). kubectl supports no other form. It does not validate on the client side what
/// the document does not describe: the server validates everything.
const OPENAPI_DOCUMENT: &[u8] = b"\x0a\x032.0\x12\x0e\x0a\x08Dormouse\x12\x02v1\x42\x00";
/// The reported Kubernetes version, major and minor: kubectl warns about a version skew.
const KUBERNETES_VERSION: (&str, &str) = ("1", "36");

/// A group besides the core: its name, its version, and its resources.
type Group = (&'static str, &'static str, fn() -> Value);
const GROUPS: [Group; 5] = [
    ("dormouse.dev", "v1alpha1", app_resources),
    ("discovery.k8s.io", "v1", slice_resources),
    ("rbac.authorization.k8s.io", "v1", role_resources),
    ("authorization.k8s.io", "v1", access_reviews),
    ("authentication.k8s.io", "v1", user_reviews),
];

pub(super) fn routes() -> Router<Arc<Api>> {
    let mut routes = Router::new()
        .route("/version", get(|| async { Json(version()) }))
        .route("/api", get(|| async { Json(core_versions()) }))
        .route("/api/v1", get(|| async { Json(core_resources()) }))
        .route("/apis", get(|| async { Json(groups()) }))
        .route("/openapi/v2", get(openapi));
    for one in GROUPS {
        let (name, version, resources) = one;
        let path = format!("/apis/{name}");
        routes = routes
            .route(
                &format!("{path}/{version}"),
                get(async move || Json(resources())),
            )
            .route(&path, get(async move || Json(group(one))));
    }
    routes
}

fn version() -> Value {
    let (major, minor) = KUBERNETES_VERSION;
    let git = format!("v{major}.{minor}.0+dormouse-{}", env!("CARGO_PKG_VERSION"));
    json!({"major": major, "minor": minor, "gitVersion": git, "platform": "linux/amd64"})
}

fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

fn group((name, version, _): Group) -> Value {
    let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": name,
        "versions": [version], "preferredVersion": version,
    })
}

fn groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": GROUPS.map(group)})
}

fn core_resources() -> Value {
    let log = json!({"name": "pods/log", "singularName": "", "namespaced": true, "kind": "Pod", "verbs": ["get"]});
    let eviction = json!({
        "name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1",
        "kind": "Eviction", "verbs": ["create"],
    });
    resources(
        "v1",
        &[
            resource::<Pod>(),
            vec![log, eviction, insight("pods/explain", "Explanation")],
            resource::<Node>(),
            resource::<Namespace>(),
            resource::<Event>(),
            resource::<ConfigMap>(),
            resource::<Service>(),
        ],
    )
}

fn slice_resources() -> Value {
    resources("discovery.k8s.io/v1", &[resource::<EndpointSlice>()])
}

fn app_resources() -> Value {
    let scale = json!({
        "name": "apps/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1",
        "kind": "Scale", "verbs": ["get", "patch", "update"],
    });
    let of_app = vec![
        scale,
        insight("apps/explain", "Explanation"),
        insight("apps/logs", "LogList"),
        insight("apps/wakes", "WakeList"),
    ];
    resources(
        "dormouse.dev/v1alpha1",
        &[
            resource::<App>(),
            of_app,
            resource::<Revision>(),
            transient(trust::CREATED, &["create"]),
            transient(trust::TOKENS, &["create", "delete", "list"]),
        ],
    )
}

/// A subresource with a report (`dormouse.dev/v1`).
fn insight(name: &str, kind: &str) -> Value {
    json!({
        "name": name, "singularName": "", "namespaced": true, "group": "dormouse.dev", "version": "v1", "kind": kind,
        "verbs": ["get"],
    })
}

fn role_resources() -> Value {
    resources(
        "rbac.authorization.k8s.io/v1",
        &[
            resource::<Role>(),
            resource::<RoleBinding>(),
            resource::<ClusterRole>(),
            resource::<ClusterRoleBinding>(),
        ],
    )
}

fn access_reviews() -> Value {
    reviews("authorization.k8s.io/v1", review::OF_AUTHORIZATION)
}

fn user_reviews() -> Value {
    reviews("authentication.k8s.io/v1", review::OF_AUTHENTICATION)
}

fn reviews(group_version: &str, all: review::Reviews) -> Value {
    resources(group_version, &[transient(all, &["create"])])
}

/// Kinds whose objects cannot be read.
fn transient(all: review::Reviews, verbs: &[&str]) -> Vec<Value> {
    let one = |(name, namespaced, kind): &(&str, bool, &str)| {
        json!({
            "name": name, "singularName": kind.to_lowercase(), "namespaced": namespaced, "kind": kind,
            "verbs": verbs,
        })
    };
    all.iter().map(one).collect()
}

fn resources(group_version: &str, all: &[Vec<Value>]) -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": all.concat()})
}

fn resource<K: Kind>() -> Vec<Value> {
    let kind = K::kind(&());
    let status = K::HAS_STATUS.then(|| {
        json!({
            "name": format!("{}/status", K::PLURAL), "singularName": "", "namespaced": K::NAMESPACED, "kind": kind,
            "verbs": ["get", "patch", "update"],
        })
    });
    let all = json!({
        "name": K::PLURAL, "singularName": K::SINGULAR, "namespaced": K::NAMESPACED, "kind": kind,
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"], "shortNames": K::SHORT,
    });
    std::iter::once(all).chain(status).collect()
}

async fn openapi(headers: HeaderMap) -> Response {
    let accepted = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if accepted.contains("proto-openapi") {
        return (
            [(header::CONTENT_TYPE, OPENAPI_PROTOBUF)],
            Bytes::from_static(OPENAPI_DOCUMENT),
        )
            .into_response();
    }
    let info = json!({"title": "Dormouse", "version": "v1"});
    Json(json!({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}})).into_response()
}
