//! Namespaces, with kubectl's columns.

use std::borrow::Cow;

use dormouse_cluster::{FieldError, Guard, Object, validate};
use k8s_openapi::{api::core::v1::Namespace, jiff::Timestamp};
use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::{
    Api, Failure, fields,
    table::{Column, date_at},
};

const COLUMNS: &[Column] = &[
    Column::new("Name", "string"),
    Column::new("Status", "string"),
    Column::new("Age", "string"),
];

/// The label with the namespace's name, by which policies select it.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Kind for Namespace {
    const BASE: &'static str = "/api/v1";
    const SINGULAR: &'static str = "namespace";
    const SHORT: &'static [&'static str] = &["ns"];

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            json!(fields::text(object, "metadata.name")),
            json!(fields::text(object, "status.phase")),
            date_at(object, "metadata.creationTimestamp", now),
        ]
    }

    fn set_defaults(&mut self, _old: Option<&Self>, _rules: &Rules<'_>) {
        let name = self.metadata.name.clone().unwrap_or_default();
        let labels = self.metadata.labels.get_or_insert_default();
        labels.insert(NAME_LABEL.to_owned(), name);
        let status = self.status.get_or_insert_default();
        status.phase.get_or_insert_with(|| "Active".to_owned());
    }

    fn validate(&self, _old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        validate::namespace(self)
    }

    async fn check_removal(&self, api: &Api) -> Result<(), Failure> {
        api.namespaces.check_removal(api, &self.key().name).await
    }

    async fn remove(&self, api: &Api, guard: &Guard) -> Result<(), Failure> {
        let key = self.key();
        // Before, too: an object that is created from now on creates the namespace again.
        api.namespaces.forget(&key.name);
        let deleted = api.client.delete::<Self>(&key, guard).await;
        deleted.map_err(|error| Failure::of_client::<Self>(&error, &key))?;
        api.namespaces.forget(&key.name);
        Ok(())
    }
}
