//! The parameters of a request's URL: the names in its path and the options of its query.

use axum::extract::{FromRequestParts, Query};
use dormouse_cluster::Key;
use http::{Method, request};
use serde::{Deserialize, de::DeserializeOwned};

use super::{Failure, selector::Selector, table::Include};

/// The namespace and the name in a resource's path, each empty if there is none. The gate parses the path once: it decides on the names that
/// the handlers get, and a path that it takes for no resource's has none for them, whatever the router finds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Names {
    /// The key of the object at the path.
    pub(super) fn key(&self) -> Key {
        Key::new(self.namespace.clone(), self.name.clone())
    }
}

impl<S: Sync> FromRequestParts<S> for Names {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut request::Parts, _state: &S) -> Result<Self, Failure> {
        let names = parts.extensions.get::<Self>().cloned();
        names.ok_or_else(Failure::no_such_path)
    }
}

/// The options in a query, decoded; one that cannot be, such as one with an option twice, is refused with a Status.
#[derive(Debug)]
pub(super) struct Options<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Options<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut request::Parts, state: &S) -> Result<Self, Failure> {
        let query = Query::from_request_parts(parts, state).await;
        let Query(options) = query.map_err(|error| Failure::bad_request(error.body_text()))?;
        Ok(Self(options))
    }
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

    /// Whether it selects some of the objects.
    pub(super) fn selects(&self) -> bool {
        !self.label_selector.is_empty() || !self.field_selector.is_empty()
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
    dry_run: Option<String>,
}

impl WriteQuery {
    /// Whether a write by this method stores nothing.
    pub(super) fn is_dry_run(&self, method: &Method) -> Result<bool, Failure> {
        let options = match *method {
            Method::PUT => "UpdateOptions",
            Method::PATCH => "PatchOptions",
            Method::DELETE => DELETE_OPTIONS,
            _ => "CreateOptions",
        };
        is_dry_run(options, self.dry_run.as_slice())
    }
}

/// The kind of the options of a delete.
pub(super) const DELETE_OPTIONS: &str = "DeleteOptions";
/// The only stage of writes that a client may leave out: the last.
const ALL: &str = "All";

/// Whether a write with these values of `dryRun` in options of this kind stores nothing. Another value is refused: its client wants no write.
pub(super) fn is_dry_run(options: &str, values: &[String]) -> Result<bool, Failure> {
    match values.iter().find(|value| *value != ALL) {
        Some(other) => Err(Failure::unsupported_option(options, "dryRun", other, ALL)),
        None => Ok(!values.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    #[tokio::test]
    async fn a_query_that_cannot_be_decoded_is_refused_with_a_status() {
        let parse = async |query: &str| {
            let uri = format!("/api/v1/pods?{query}");
            let (mut parts, ()) = Request::get(uri).body(()).unwrap().into_parts();
            Options::<ListQuery>::from_request_parts(&mut parts, &()).await
        };
        assert!(parse("fieldSelector=a%3Db&limit=2").await.is_ok());
        for query in ["fieldSelector=a%3Db&fieldSelector=a%3Dc", "limit=many"] {
            let status = parse(query).await.unwrap_err().status();
            let found = (&status["kind"], &status["code"], &status["reason"]);
            let want = ("Status".into(), 400.into(), "BadRequest".into());
            assert_eq!(found, (&want.0, &want.1, &want.2), "{query}");
        }
    }
}
