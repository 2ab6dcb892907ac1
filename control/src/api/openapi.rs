//! The OpenAPI v3 documents, one per group and version, by which `kubectl explain` describes fields. kubectl also reads in them that the
//! server validates fields, so that it does not.

use std::sync::{Arc, OnceLock};

use axum::{Json, Router, body::Bytes, routing::get};
use dormouse_cluster::{App, Revision};
use http::header;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Event, Namespace, Node, Pod, Service},
    discovery::v1::EndpointSlice,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{Api, Kind};

const APPS: &str = "apis/dormouse.dev/v1alpha1";
const CORE: &str = "api/v1";
const SLICES: &str = "apis/discovery.k8s.io/v1";
const ROLES: &str = "apis/rbac.authorization.k8s.io/v1";

pub(super) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/openapi/v3", get(|| async { Json(index()) }))
        .merge(document(APPS, apps))
        .merge(document(CORE, core))
        .merge(document(SLICES, slices))
        .merge(document(ROLES, roles))
}

/// The route of a document, which is made once: that takes milliseconds.
fn document(group: &str, make: fn() -> Value) -> Router<Arc<Api>> {
    let kept = Arc::new(OnceLock::<Bytes>::new());
    let answer = move || async move {
        let document = kept.get_or_init(|| make().to_string().into()).clone();
        ([(header::CONTENT_TYPE, "application/json")], document)
    };
    Router::new().route(&url(group), get(answer))
}

fn url(group: &str) -> String {
    format!("/openapi/v3/{group}")
}

fn index() -> Value {
    let entry = |group| json!({"serverRelativeURL": url(group)});
    let all = [APPS, CORE, SLICES, ROLES].map(|group| (group.to_owned(), entry(group)));
    json!({"paths": Map::from_iter(all)})
}

fn apps() -> Value {
    let mut document = Document::default();
    let version = App::definition().spec.versions.into_iter().next();
    let schema = version.and_then(|version| version.schema?.open_api_v3_schema);
    document.add::<App>(json!(schema));
    document.add_generated::<Revision>();
    document.finish()
}

fn core() -> Value {
    let mut document = Document::default();
    document.add_generated::<Pod>();
    document.add_generated::<Node>();
    document.add_generated::<Namespace>();
    document.add_generated::<Event>();
    document.add_generated::<ConfigMap>();
    document.add_generated::<Service>();
    document.finish()
}

fn slices() -> Value {
    let mut document = Document::default();
    document.add_generated::<EndpointSlice>();
    document.finish()
}

fn roles() -> Value {
    let mut document = Document::default();
    document.add_generated::<Role>();
    document.add_generated::<RoleBinding>();
    document.add_generated::<ClusterRole>();
    document.add_generated::<ClusterRoleBinding>();
    document.finish()
}

/// The document of one group and version.
#[derive(Default)]
struct Document {
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
}

impl Document {
    /// Adds a kind by the schema of its Rust type, with the types that it refers to.
    fn add_generated<K: Kind>(&mut self) {
        let generator = SchemaSettings::openapi3().into_generator();
        let mut schema = json!(generator.into_root_schema_for::<K>());
        if let Some(Value::Object(used)) =
            schema.pointer_mut("/components/schemas").map(Value::take)
        {
            self.schemas.extend(used);
        }
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("components");
        }
        self.add::<K>(schema);
    }

    fn add<K: Kind>(&mut self, mut schema: Value) {
        let (group, version, kind) = (K::group(&()), K::version(&()), K::kind(&()));
        let identity = json!({"group": group, "version": version, "kind": kind});
        let inside = if K::NAMESPACED {
            "namespaces/{namespace}/"
        } else {
            ""
        };
        let path = format!("{}/{inside}{}/{{name}}", K::BASE, K::PLURAL);
        let validation =
            json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string"}});
        let operations = json!({
            "get": {"x-kubernetes-group-version-kind": identity},
            "patch": {"parameters": [validation], "x-kubernetes-group-version-kind": identity},
        });
        self.paths.insert(path, operations);
        schema["x-kubernetes-group-version-kind"] = json!([identity]);
        self.schemas
            .insert(format!("{group}.{version}.{kind}"), schema);
    }

    fn finish(self) -> Value {
        json!({
            "openapi": "3.0.0", "info": {"title": "Dormouse", "version": "v1"},
            "paths": self.paths, "components": {"schemas": self.schemas},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All references in a document.
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_is_in_the_document() {
        for document in [apps(), core(), slices(), roles()] {
            let mut found = Vec::new();
            references(&document, &mut found);
            for reference in found {
                let pointer = reference.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
        }
    }
}
