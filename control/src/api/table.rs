//! Tables of objects, for `kubectl get` and `dormouse get`.

use std::borrow::Cow;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Kind, age, fields};

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    /// The column's heading.
    pub(super) name: Cow<'static, str>,
    /// `string`, `integer` or `date`.
    pub(super) type_: Cow<'static, str>,
    /// 0: always shown; 1: shown with `-o wide`.
    pub(super) priority: i32,
}

impl Column {
    /// A column that is always shown.
    pub(super) const fn new(name: &'static str, type_: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            type_: Cow::Borrowed(type_),
            priority: 0,
        }
    }

    /// A column that is shown with `-o wide`.
    pub(super) const fn wide(name: &'static str, type_: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            type_: Cow::Borrowed(type_),
            priority: 1,
        }
    }

    fn definition(&self) -> Value {
        let format = if self.name == "Name" { "name" } else { "" };
        json!({"name": self.name, "type": self.type_, "format": format, "description": "", "priority": self.priority})
    }
}

/// The part of each object that its row contains (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Include {
    /// Nothing.
    None,
    /// The metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// The table of `objects`, with or without column definitions.
pub(super) fn table<K: Kind>(
    objects: &[Value],
    revision: &str,
    include: Include,
    definitions: bool,
) -> Value {
    let now = Timestamp::now();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| row::<K>(object, include, now))
        .collect();
    let columns = if definitions {
        K::columns()
    } else {
        Cow::Borrowed(&[][..])
    };
    let columns: Vec<Value> = columns.iter().map(Column::definition).collect();
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": {"resourceVersion": revision},
        "columnDefinitions": columns, "rows": rows,
    })
}

fn row<K: Kind>(object: &Value, include: Include, now: Timestamp) -> Value {
    let mut row = json!({"cells": K::cells(object, now)});
    match include {
        Include::None => {}
        Include::Metadata => {
            row["object"] = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"],
            });
        }
        Include::Object => row["object"] = object.clone(),
    }
    row
}

/// The age of the date at `path`.
pub(super) fn date_at(object: &Value, path: &str, now: Timestamp) -> Value {
    fields::at(object, path).map_or(Value::Null, |value| date(value, now))
}

/// The age of an RFC 3339 date.
pub(super) fn date(value: &Value, now: Timestamp) -> Value {
    let since: Option<Timestamp> = value.as_str().and_then(|text| text.parse().ok());
    since.map_or(Value::Null, |since| json!(age::age(since, now)))
}
