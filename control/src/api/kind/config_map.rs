//! ConfigMaps: the one of the autoscaler's settings.

use std::borrow::Cow;

use dormouse_cluster::{FieldError, validate};
use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::{
    fields,
    table::{Column, date_at},
};

const COLUMNS: &[Column] = &[
    Column::new("Name", "string"),
    Column::new("Data", "integer"),
    Column::new("Age", "string"),
];

impl Kind for ConfigMap {
    const BASE: &'static str = "/api/v1";
    const SINGULAR: &'static str = "configmap";
    const SHORT: &'static [&'static str] = &["cm"];

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        let entries = fields::at(object, "data").and_then(Value::as_object);
        vec![
            json!(fields::text(object, "metadata.name")),
            json!(entries.map_or(0, serde_json::Map::len)),
            date_at(object, "metadata.creationTimestamp", now),
        ]
    }

    fn validate(&self, _old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        validate::config_map(self)
    }
}
