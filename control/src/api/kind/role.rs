//! Roles and ClusterRoles. A user writes only rules with rights that the user has.

use std::borrow::Cow;

use dormouse_cluster::{FieldError, Object, validate};
use dormouse_rbac::{User, builtin::everything};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::{
    Api, Failure, fields,
    rights::escalation::{self, Grant},
    table::Column,
};

const COLUMNS: &[Column] = &[
    Column::new("Name", "string"),
    Column::new("Created At", "date"),
];

fn cells(object: &Value) -> Vec<Value> {
    let text = |path| json!(fields::text(object, path));
    vec![text("metadata.name"), text("metadata.creationTimestamp")]
}

impl Kind for Role {
    const BASE: &'static str = "/apis/rbac.authorization.k8s.io/v1";
    const SINGULAR: &'static str = "role";
    const SHORT: &'static [&'static str] = &[];
    const HAS_STATUS: bool = false;

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, _now: Timestamp) -> Vec<Value> {
        cells(object)
    }

    fn validate(&self, _old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        validate::role(self)
    }

    async fn admit(&self, _old: Option<&Self>, user: &User, api: &Api) -> Result<(), Failure> {
        let rules = self.rules.as_deref().unwrap_or_default();
        escalation::check_role(api, user, &Grant::of::<Self>(&self.key()), rules).await
    }
}

impl Kind for ClusterRole {
    const BASE: &'static str = "/apis/rbac.authorization.k8s.io/v1";
    const SINGULAR: &'static str = "clusterrole";
    const SHORT: &'static [&'static str] = &[];
    const HAS_STATUS: bool = false;

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, _now: Timestamp) -> Vec<Value> {
        cells(object)
    }

    fn validate(&self, _old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        validate::cluster_role(self)
    }

    async fn admit(&self, old: Option<&Self>, user: &User, api: &Api) -> Result<(), Failure> {
        let grant = Grant::of::<Self>(&self.key());
        let rules = self.rules.as_deref().unwrap_or_default();
        escalation::check_role(api, user, &grant, rules).await?;
        let aggregates = |role: &Self| role.aggregation_rule.is_some();
        if aggregates(self) || old.is_some_and(aggregates) {
            return escalation::check_role(api, user, &grant, &everything()).await;
        }
        Ok(())
    }
}
