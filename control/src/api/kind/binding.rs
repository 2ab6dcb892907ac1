//! RoleBindings and ClusterRoleBindings. A user binds only roles with rights that the user has.

use std::borrow::Cow;

use dormouse_cluster::{FieldError, Object, validate};
use dormouse_rbac::{GROUP, User};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::{
    Api, Failure, fields,
    rights::escalation::{self, Grant},
    table::{Column, date_at},
};

const COLUMNS: &[Column] = &[
    Column::new("Name", "string"),
    Column::new("Role", "string"),
    Column::new("Age", "string"),
    Column::wide("Users", "string"),
    Column::wide("Groups", "string"),
    Column::wide("ServiceAccounts", "string"),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let text = |path| fields::text(object, path);
    let subjects = |kind: &str| {
        let all = object["subjects"].as_array().into_iter().flatten();
        let of_kind = all.filter(|subject| subject["kind"] == kind);
        let names = of_kind.map(|subject| match fields::text(subject, "namespace") {
            "" => fields::text(subject, "name").to_owned(),
            namespace => format!("{namespace}/{}", fields::text(subject, "name")),
        });
        json!(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        json!(text("metadata.name")),
        json!(format!("{}/{}", text("roleRef.kind"), text("roleRef.name"))),
        date_at(object, "metadata.creationTimestamp", now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

/// Sets the API groups that are not given.
fn set_groups(role: &mut RoleRef, subjects: Option<&mut Vec<Subject>>) {
    let is_unset = |group: &Option<String>| group.as_deref().unwrap_or_default().is_empty();
    if is_unset(&role.api_group) {
        role.api_group = Some(GROUP.to_owned());
    }
    for subject in subjects.into_iter().flatten() {
        if is_unset(&subject.api_group) && matches!(subject.kind.as_str(), "User" | "Group") {
            subject.api_group = Some(GROUP.to_owned());
        }
    }
}

impl Kind for RoleBinding {
    const BASE: &'static str = "/apis/rbac.authorization.k8s.io/v1";
    const SINGULAR: &'static str = "rolebinding";
    const SHORT: &'static [&'static str] = &[];
    const HAS_STATUS: bool = false;

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        cells(object, now)
    }

    fn set_defaults(&mut self, _old: Option<&Self>, _rules: &Rules<'_>) {
        set_groups(&mut self.role_ref, self.subjects.as_mut());
    }

    fn validate(&self, old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        validate::role_binding(old, self)
    }

    async fn admit(&self, _old: Option<&Self>, user: &User, api: &Api) -> Result<(), Failure> {
        escalation::check_binding(api, user, &Grant::of::<Self>(&self.key()), &self.role_ref).await
    }
}

impl Kind for ClusterRoleBinding {
    const BASE: &'static str = "/apis/rbac.authorization.k8s.io/v1";
    const SINGULAR: &'static str = "clusterrolebinding";
    const SHORT: &'static [&'static str] = &[];
    const HAS_STATUS: bool = false;

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        cells(object, now)
    }

    fn set_defaults(&mut self, _old: Option<&Self>, _rules: &Rules<'_>) {
        set_groups(&mut self.role_ref, self.subjects.as_mut());
    }

    fn validate(&self, old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        validate::cluster_role_binding(old, self)
    }

    async fn admit(&self, _old: Option<&Self>, user: &User, api: &Api) -> Result<(), Failure> {
        escalation::check_binding(api, user, &Grant::of::<Self>(&self.key()), &self.role_ref).await
    }
}
