//! The parameters of a request's URL: the names in its path and the options of its query.

use std::collections::HashMap;

use axum::extract::Path;
use dormouse_cluster::Key;
use serde::Deserialize;

use super::{Failure, selector::Selector, table::Include};

/// The parameters of a path: at most a namespace and a name.
pub(super) type Names = Path<HashMap<String, String>>;

/// The key of the object at a path.
pub(super) fn key_of(names: &HashMap<String, String>) -> Key {
    let part = |name| names.get(name).cloned().unwrap_or_default();
    Key::new(part("namespace"), part("name"))
}

/// The options of a list or a watch.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListQuery {
    watch: String,
    label_selector: String,
    field_selector: String,
    pub(super) resource_version: String,
    pub(super) resource_version_match: String,
    limit: Option<i64>,
    #[serde(rename = "continue")]
    pub(super) continue_: String,
    pub(super) timeout_seconds: Option<u32>,
    pub(super) send_initial_events: String,
    allow_watch_bookmarks: String,
    include_object: String,
}

impl ListQuery {
    pub(super) fn selector(&self) -> Result<Selector, Failure> {
        Selector::parse(&self.label_selector, &self.field_selector)
    }

    pub(super) fn include(&self) -> Include {
        match self.include_object.as_str() {
            "None" => Include::None,
            "Object" => Include::Object,
            _ => Include::Metadata,
        }
    }

    pub(super) fn is_watch(&self) -> bool {
        is_true(&self.watch)
    }

    pub(super) fn sends_initial_events(&self) -> bool {
        is_true(&self.send_initial_events)
    }

    pub(super) fn allows_bookmarks(&self) -> bool {
        is_true(&self.allow_watch_bookmarks)
    }

    /// Most objects of a list. As in Kubernetes, a list of any version has all.
    pub(super) fn limit(&self) -> Option<usize> {
        let limit = self
            .limit
            .filter(|limit| *limit > 0 && self.resource_version != "0");
        limit.and_then(|limit| usize::try_from(limit).ok())
    }
}

/// A boolean option, in the spellings of Go's `strconv.ParseBool`.
pub(super) fn is_true(text: &str) -> bool {
    matches!(text, "1" | "true" | "True" | "t")
}

/// The options of a write. `fieldManager` and `fieldValidation` are ignored: fields have one owner, and unknown fields
/// are always errors.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WriteQuery {
    dry_run: String,
}

impl WriteQuery {
    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run == "All"
    }
}
