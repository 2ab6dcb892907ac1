//! The API's properties of a kind: path, names, table columns, defaults and validation.

mod app;
mod binding;
mod config_map;
mod endpoint_slice;
mod event;
mod namespace;
mod node;
mod pod;
mod revision;
mod role;
mod service;

use std::borrow::Cow;
use std::sync::Arc;

use dormouse_autoscaler::settings::Cluster;
use dormouse_cluster::{FieldError, Guard, Object, ServiceRanges, VipRange};
use dormouse_rbac::User;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde_json::Value;

use super::{Api, Failure, table::Column};

/// What the validity of objects depends on besides them.
pub(super) struct Rules<'a> {
    /// The VIP ranges of apps.
    pub(super) ranges: &'a [VipRange],
    /// The autoscaling settings of apps that set none.
    pub(super) autoscaling: Arc<Cluster>,
    /// The ranges of cluster IPs.
    pub(super) services: &'a ServiceRanges,
}

impl<'a> Rules<'a> {
    /// The rules now.
    pub(super) fn of(api: &'a Api) -> Self {
        Self {
            ranges: api.claims.ranges(),
            autoscaling: api.insight.autoscaling(),
            services: api.services.ranges(),
        }
    }
}

/// A kind that the API serves.
pub(super) trait Kind: Object + JsonSchema {
    /// Prefix of the kind's paths: `/api/v1` or `/apis/GROUP/VERSION`.
    const BASE: &'static str;
    /// Singular name.
    const SINGULAR: &'static str;
    /// Short names, for kubectl.
    const SHORT: &'static [&'static str];
    /// Whether the objects have the subresource `status`.
    const HAS_STATUS: bool = true;

    /// The table's columns, the name first.
    fn columns() -> Cow<'static, [Column]>;
    /// Adds to the objects of a list what their rows show of other objects. A single object's row goes without: it is not worth a read of all others.
    fn complete(
        _api: &Api,
        _objects: &mut [Value],
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        std::future::ready(Ok(()))
    }
    /// The cells of an object's row.
    fn cells(object: &Value, now: Timestamp) -> Vec<Value>;
    /// Sets the defaults of fields that are not set. `old` is the object that is replaced.
    fn set_defaults(&mut self, _old: Option<&Self>, _rules: &Rules<'_>) {}
    /// Validates the object; `old` is the object that is replaced.
    fn validate(&self, old: Option<&Self>, rules: &Rules<'_>) -> Vec<FieldError>;

    /// Fails if the user, who may write the kind, may not write this object in place of `old`.
    fn admit(
        &self,
        _old: Option<&Self>,
        _user: &User,
        _api: &Api,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        std::future::ready(Ok(()))
    }

    /// The resource name in messages: `apps.dormouse.dev`, `pods`.
    fn resource() -> String {
        let group = Self::group(&());
        if group.is_empty() {
            Self::PLURAL.to_owned()
        } else {
            format!("{}.{group}", Self::PLURAL)
        }
    }

    /// The object as [`Kind::insert`] or [`Kind::replace`] would store it, with what they check beyond valid fields: for a dry run.
    fn preview(
        self,
        _old: Option<&Self>,
        _api: &Api,
    ) -> impl Future<Output = Result<Self, Failure>> + Send {
        std::future::ready(Ok(self))
    }

    /// Stores a new object.
    fn insert(self, api: &Api) -> impl Future<Output = Result<Self, Failure>> + Send {
        async move {
            api.client
                .create(&self)
                .await
                .map_err(|error| Failure::of_client::<Self>(&error, &self.key()))
        }
    }

    /// Stores the object in place of `old`, if that is still the newest.
    fn replace(self, old: &Self, api: &Api) -> impl Future<Output = Result<Self, Failure>> + Send {
        async move {
            let written = api.client.update(self, &Guard::at(old.revision())).await;
            written.map_err(|error| Failure::of_client::<Self>(&error, &old.key()))
        }
    }

    /// Fails if the object must not be deleted; a dry run asks, too.
    fn check_removal(&self, _api: &Api) -> impl Future<Output = Result<(), Failure>> + Send {
        async { Ok(()) }
    }

    /// Deletes the object if `guard` holds.
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
