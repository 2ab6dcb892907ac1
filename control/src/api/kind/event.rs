//! Events, with kubectl's columns.

use std::borrow::Cow;

use dormouse_cluster::{FieldError, validate};
use k8s_openapi::{api::core::v1::Event, jiff::Timestamp};
use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::{
    fields,
    table::{Column, date_at},
};

const COLUMNS: &[Column] = &[
    Column::new("Last Seen", "string"),
    Column::new("Type", "string"),
    Column::new("Reason", "string"),
    Column::new("Object", "string"),
    Column::new("Message", "string"),
    Column::wide("Source", "string"),
    Column::wide("First Seen", "string"),
    Column::wide("Count", "integer"),
    Column::wide("Name", "string"),
];

impl Kind for Event {
    const BASE: &'static str = "/api/v1";
    const SINGULAR: &'static str = "event";
    const SHORT: &'static [&'static str] = &["ev"];

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        let text = |path| json!(fields::text(object, path));
        let about = fields::text(object, "involvedObject.kind").to_lowercase();
        vec![
            seen(object, now),
            text("type"),
            text("reason"),
            json!(format!(
                "{about}/{}",
                fields::text(object, "involvedObject.name")
            )),
            text("message"),
            text("source.component"),
            date_at(object, "firstTimestamp", now),
            object.get("count").cloned().unwrap_or(json!(1)),
            text("metadata.name"),
        ]
    }

    fn validate(&self, _old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        validate::event(self)
    }
}

/// The age of the last occurrence; with more than one, also their count and the age of the first.
fn seen(object: &Value, now: Timestamp) -> Value {
    let last = if object.get("lastTimestamp").is_some_and(Value::is_string) {
        "lastTimestamp"
    } else {
        "eventTime"
    };
    let last = date_at(object, last, now);
    let count = object.get("count").and_then(Value::as_u64).unwrap_or(1);
    match (&last, count) {
        (Value::String(last), 2..) => {
            let first = date_at(object, "firstTimestamp", now);
            json!(format!(
                "{last} (x{count} over {})",
                first.as_str().unwrap_or("?")
            ))
        }
        _ => last,
    }
}
