//! What the API must know of a kind beyond its type: its path, its names, its columns, its rules.

mod app;
mod event;
mod node;
mod pod;

use std::borrow::Cow;

use dormouse_cluster::{FieldError, Guard, Object, VipRange};
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde_json::Value;

use super::{Api, Failure, table::Column};

/// A kind that the API serves.
pub(super) trait Kind: Object + JsonSchema {
    /// Start of the kind's paths: `/api/v1` or `/apis/GROUP/VERSION`.
    const BASE: &'static str;
    /// The kind's name for one object.
    const SINGULAR: &'static str;
    /// Abbreviations that kubectl accepts.
    const SHORT: &'static [&'static str];

    /// The columns of its table, the name first.
    fn columns() -> Cow<'static, [Column]>;
    /// The cells of one object's row.
    fn cells(object: &Value, now: Timestamp) -> Vec<Value>;
    /// Fills what a manifest may leave out. `old` is the object that is replaced.
    fn fill(&mut self, old: Option<&Self>);
    /// Everything that is wrong with this object.
    fn check(&self, old: Option<&Self>, ranges: &[VipRange]) -> Vec<FieldError>;

    /// The kind as messages name it: `apps.dormouse.dev`, `pods`.
    fn resource() -> String {
        let group = Self::group(&());
        if group.is_empty() {
            Self::PLURAL.to_owned()
        } else {
            format!("{}.{group}", Self::PLURAL)
        }
    }

    /// Whether a new object could be written: what a dry run tells beyond its fields.
    fn insertable(&self, _api: &Api) -> impl Future<Output = Result<(), Failure>> + Send {
        std::future::ready(Ok(()))
    }

    /// Writes a new object.
    fn insert(self, api: &Api) -> impl Future<Output = Result<Self, Failure>> + Send {
        async move {
            api.client
                .create(&self)
                .await
                .map_err(|error| Failure::of_client::<Self>(&error, &self.key()))
        }
    }

    /// Removes this object if `guard` holds.
    fn remove(&self, api: &Api, guard: &Guard) -> impl Future<Output = Result<(), Failure>> + Send {
        async move {
            let key = self.key();
            let deleted = api.client.delete::<Self>(&key, guard).await;
            deleted
                .map(drop)
                .map_err(|error| Failure::of_client::<Self>(&error, &key))
        }
    }
}
