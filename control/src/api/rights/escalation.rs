//! The escalation check of roles and bindings: the rights that they give are also their writer's, unless that user may `escalate` or `bind`.

use dormouse_cluster::{Key, Object};
use dormouse_rbac::{Attributes, GROUP, Resource, User};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleRef};

use super::authorize;
use crate::api::{Api, Failure, Kind, storage};

/// The role or binding that gives rights.
pub(in crate::api) struct Grant {
    resource: &'static str,
    /// Where the rights are; empty: in the cluster.
    namespace: String,
    name: String,
    /// The failure of the write.
    forbidden: fn(&str, &str) -> Failure,
}

impl Grant {
    pub(in crate::api) fn of<K: Kind>(key: &Key) -> Self {
        Self {
            resource: K::PLURAL,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            forbidden: Failure::forbidden::<K>,
        }
    }

    fn check(&self, api: &Api, user: &User, rules: &[PolicyRule]) -> Result<(), Failure> {
        let checked = api.policy.read().check_grant(user, &self.namespace, rules);
        checked.map_err(|why| (self.forbidden)(&self.name, &why))
    }
}

/// Fails if `user` may not write a role with `rules`.
pub(in crate::api) async fn check_role(
    api: &Api,
    user: &User,
    grant: &Grant,
    rules: &[PolicyRule],
) -> Result<(), Failure> {
    if may(
        api,
        user,
        "escalate",
        (grant.resource, &grant.namespace, &grant.name),
    )
    .await?
    {
        return Ok(());
    }
    grant.check(api, user, rules)
}

/// Fails if `user` may not write a binding of `role`.
pub(in crate::api) async fn check_binding(
    api: &Api,
    user: &User,
    grant: &Grant,
    role: &RoleRef,
) -> Result<(), Failure> {
    let is_cluster_role = role.kind == "ClusterRole";
    let resource = if is_cluster_role {
        ClusterRole::PLURAL
    } else {
        Role::PLURAL
    };
    if may(api, user, "bind", (resource, &grant.namespace, &role.name)).await? {
        return Ok(());
    }
    // From the store: a role that was written just now counts.
    let rules = if is_cluster_role {
        let found = storage::find::<ClusterRole>(api, &Key::cluster_scoped(&role.name)).await?;
        found
            .ok_or_else(|| Failure::not_found::<ClusterRole>(&role.name))?
            .rules
    } else {
        let found = storage::find::<Role>(api, &Key::new(&grant.namespace, &role.name)).await?;
        found
            .ok_or_else(|| Failure::not_found::<Role>(&role.name))?
            .rules
    };
    grant.check(api, user, rules.as_deref().unwrap_or_default())
}

async fn may(
    api: &Api,
    user: &User,
    verb: &str,
    (resource, namespace, name): (&str, &str, &str),
) -> Result<bool, Failure> {
    let resource = Resource {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        namespace: namespace.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Resource::default()
    };
    let verdict = authorize(api, user, &Attributes::resource(verb, resource)).await?;
    Ok(verdict.allowed)
}
