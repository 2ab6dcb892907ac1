//! Revisions of apps. Only a change of an app's template writes them; clients read and delete them.

use std::borrow::Cow;

use dormouse_cluster::{FieldError, Revision, validate};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::{
    fields,
    table::{Column, date_at},
};

const COLUMNS: &[Column] = &[
    Column::new("Name", "string"),
    Column::new("App", "string"),
    Column::new("Revision", "integer"),
    Column::new("Image", "string"),
    Column::new("Age", "string"),
    Column::wide("Command", "string"),
    Column::wide("Hash", "string"),
];

impl Kind for Revision {
    const BASE: &'static str = "/apis/dormouse.dev/v1alpha1";
    const SINGULAR: &'static str = "revision";
    const SHORT: &'static [&'static str] = &["rev"];

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        let text = |path| json!(fields::text(object, path));
        let image = match fields::text(object, "spec.template.container.image") {
            "" => "<none>",
            image => image,
        };
        vec![
            text("metadata.name"),
            text("spec.app"),
            fields::at(object, "spec.revision")
                .cloned()
                .unwrap_or_default(),
            json!(image),
            date_at(object, "metadata.creationTimestamp", now),
            json!(words(object, "spec.template.container.command")),
            text("spec.templateHash"),
        ]
    }

    fn validate(&self, old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        validate::revision(old, self)
    }
}

/// An array of words as one text.
fn words(object: &Value, path: &str) -> String {
    let words = fields::at(object, path).and_then(Value::as_array);
    let words = words.into_iter().flatten().filter_map(Value::as_str);
    words.collect::<Vec<_>>().join(" ")
}
