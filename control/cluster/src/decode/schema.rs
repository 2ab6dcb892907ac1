//! The fields of a kind at a path, from the JSON schema that its types generate.

use std::ptr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use super::Step;

/// The JSON schema of a kind, without references.
pub(super) struct Schema(Value);

impl Schema {
    pub(super) fn of<K: JsonSchema>() -> Self {
        let mut schema = generated::<K>();
        // The schema of a custom resource does not contain its metadata.
        if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            fields.insert("metadata".to_owned(), generated::<ObjectMeta>());
        }
        Self(schema)
    }

    /// The schema of the whole object.
    pub(super) fn root(&self) -> &Value {
        &self.0
    }

    /// Names of the fields of the value at `path`, sorted.
    pub(super) fn fields(&self, path: &[Step]) -> Vec<String> {
        let found = path
            .iter()
            .try_fold(&self.0, |schema, step| child(schema, step));
        found
            .map(|schema| self.fields_of(schema))
            .unwrap_or_default()
    }

    /// Names of the fields of a value with this part of the schema, sorted.
    pub(super) fn fields_of(&self, schema: &Value) -> Vec<String> {
        let mut names = Vec::new();
        collect(schema, &mut names);
        if ptr::eq(schema, &raw const self.0) {
            names.extend(["apiVersion", "kind", "metadata"].map(String::from));
        }
        names.sort();
        names.dedup();
        names
    }
}

fn generated<K: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<K>()
        .to_value()
}

/// `schema` and the schemas that it combines, at any depth: that of a field which may be absent combines its value's.
fn parts(schema: &Value) -> Vec<&Value> {
    let combined = ["allOf", "anyOf", "oneOf"]
        .into_iter()
        .filter_map(|word| schema.get(word)?.as_array());
    let combined = combined.flatten().flat_map(parts);
    std::iter::once(schema).chain(combined).collect()
}

/// The schema of a field or an item of a value.
pub(super) fn child<'a>(schema: &'a Value, step: &Step) -> Option<&'a Value> {
    parts(schema).into_iter().find_map(|part| match step {
        Step::Field(name) => part
            .get("properties")
            .and_then(|fields| fields.get(name))
            .or_else(|| part.get("additionalProperties")),
        Step::Item(_) => part.get("items"),
    })
}

fn collect(schema: &Value, names: &mut Vec<String>) {
    for part in parts(schema) {
        let fields = part.get("properties").and_then(Value::as_object);
        names.extend(fields.into_iter().flatten().map(|(name, _)| name.clone()));
    }
}
