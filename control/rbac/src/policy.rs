//! The policy: roles and bindings, indexed by subject. A decision reads the bindings of the user and of its groups, no others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};

use crate::rule::allows;
use crate::{Attributes, GROUP, User, aggregated, escalation, service_account};

/// Namespace and name; the namespace of a cluster-scoped object is empty.
type Name = (String, String);

/// The roles and bindings of a cluster.
#[derive(Debug, Default)]
pub struct Policy {
    cluster_roles: BTreeMap<String, ClusterRole>,
    roles: HashMap<Name, Vec<PolicyRule>>,
    bindings: HashMap<Name, Binding>,
    /// The names of the bindings in a namespace (empty: in the cluster) that name a subject.
    index: HashMap<(String, Identity), BTreeSet<String>>,
}

/// A binding of either kind.
#[derive(Debug)]
struct Binding {
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// A subject, independent of the namespace of its binding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Identity {
    /// A user; a service account is one, too.
    User(String),
    Group(String),
}

impl Policy {
    /// Sets or removes a Role.
    pub fn set_role(&mut self, namespace: &str, name: &str, role: Option<&Role>) {
        let key = (namespace.to_owned(), name.to_owned());
        match role {
            Some(role) => self
                .roles
                .insert(key, role.rules.clone().unwrap_or_default()),
            None => self.roles.remove(&key),
        };
    }

    /// Sets or removes a ClusterRole.
    pub fn set_cluster_role(&mut self, name: &str, role: Option<&ClusterRole>) {
        match role {
            Some(role) => self.cluster_roles.insert(name.to_owned(), role.clone()),
            None => self.cluster_roles.remove(name),
        };
    }

    /// Sets or removes a RoleBinding.
    pub fn set_role_binding(&mut self, namespace: &str, name: &str, binding: Option<&RoleBinding>) {
        let binding = binding.map(|one| Binding {
            role: one.role_ref.clone(),
            subjects: one.subjects.clone().unwrap_or_default(),
        });
        self.set_binding((namespace.to_owned(), name.to_owned()), binding);
    }

    /// Sets or removes a ClusterRoleBinding.
    pub fn set_cluster_role_binding(&mut self, name: &str, binding: Option<&ClusterRoleBinding>) {
        let binding = binding.map(|one| Binding {
            role: one.role_ref.clone(),
            subjects: one.subjects.clone().unwrap_or_default(),
        });
        self.set_binding((String::new(), name.to_owned()), binding);
    }

    fn set_binding(&mut self, key: Name, binding: Option<Binding>) {
        if let Some(old) = self.bindings.remove(&key) {
            for identity in old.identities(&key.0) {
                let place = (key.0.clone(), identity);
                if let Some(names) = self.index.get_mut(&place) {
                    names.remove(&key.1);
                    if names.is_empty() {
                        self.index.remove(&place);
                    }
                }
            }
        }
        let Some(binding) = binding else { return };
        for identity in binding.identities(&key.0) {
            let names = self.index.entry((key.0.clone(), identity)).or_default();
            names.insert(key.1.clone());
        }
        self.bindings.insert(key, binding);
    }

    /// Why a request is allowed; `None`: no rule allows it.
    pub fn allows(&self, user: &User, attributes: &Attributes) -> Option<String> {
        let bindings = self.bindings_of(user, attributes.namespace());
        bindings
            .into_iter()
            .find(|(key, binding)| {
                let mut rules = self.rules_of(&binding.role, &key.0).into_iter().flatten();
                rules.any(|rule| allows(rule, attributes))
            })
            .map(|(key, binding)| binding.describe(key, user))
    }

    /// The rules of a user in a namespace; without one, those that hold in the whole cluster.
    pub fn rules_for(&self, user: &User, namespace: &str) -> impl Iterator<Item = &PolicyRule> {
        let bindings = self.bindings_of(user, namespace).into_iter();
        bindings
            .flat_map(|(key, binding)| self.rules_of(&binding.role, &key.0).into_iter().flatten())
    }

    /// The rules of the role that a binding in `namespace` (empty: in the cluster) refers to; `None` if it does not exist.
    pub fn rules_of(&self, role: &RoleRef, namespace: &str) -> Option<&[PolicyRule]> {
        match role.kind.as_str() {
            "ClusterRole" => {
                let role = self.cluster_roles.get(&role.name)?;
                Some(role.rules.as_deref().unwrap_or_default())
            }
            "Role" if !namespace.is_empty() => {
                let key = (namespace.to_owned(), role.name.clone());
                self.roles.get(&key).map(Vec::as_slice)
            }
            _ => None,
        }
    }

    /// The error of a user who grants `rules` in `namespace` (empty: in the cluster) without having them.
    ///
    /// # Errors
    /// The rights that the user does not have.
    pub fn check_grant(
        &self,
        user: &User,
        namespace: &str,
        rules: &[PolicyRule],
    ) -> Result<(), String> {
        escalation::check(self, user, namespace, rules)
    }

    /// The aggregated ClusterRoles whose stored rules are not the union of the roles that they select, with the union.
    pub fn outdated(&self) -> Vec<ClusterRole> {
        let all = || self.cluster_roles.values();
        let changed = all().filter_map(|role| {
            let union = aggregated(role, all())?;
            (role.rules.as_deref().unwrap_or_default() != union).then(|| ClusterRole {
                rules: Some(union),
                ..role.clone()
            })
        });
        changed.collect()
    }

    /// The bindings of the cluster, then those of the namespace, that name the user or one of its groups.
    fn bindings_of(&self, user: &User, namespace: &str) -> Vec<(&Name, &Binding)> {
        let user_and_groups = || {
            let groups = user.groups.iter().cloned().map(Identity::Group);
            std::iter::once(Identity::User(user.name.clone())).chain(groups)
        };
        let in_namespace = (!namespace.is_empty()).then_some(namespace);
        let mut found = Vec::new();
        for place in std::iter::once("").chain(in_namespace) {
            let names: BTreeSet<&String> = user_and_groups()
                .filter_map(|identity| self.index.get(&(place.to_owned(), identity)))
                .flatten()
                .collect();
            for name in names {
                let key = (place.to_owned(), name.clone());
                found.extend(self.bindings.get_key_value(&key));
            }
        }
        found
    }
}

impl Binding {
    fn identities(&self, namespace: &str) -> Vec<Identity> {
        let subjects = self.subjects.iter();
        subjects
            .filter_map(|subject| identity(subject, namespace))
            .collect()
    }

    /// The binding, its role and its subject that is the user, in Kubernetes' words.
    fn describe(&self, (namespace, name): &Name, user: &User) -> String {
        let applies = |subject: &&Subject| match identity(subject, namespace) {
            Some(Identity::User(name)) => name == user.name,
            Some(Identity::Group(group)) => user.is_in(&group),
            None => false,
        };
        let subject = self.subjects.iter().find(applies);
        let subject = subject.map_or_else(String::new, |subject| {
            let mut name = subject.name.clone();
            if subject.kind == "ServiceAccount" {
                let own = subject.namespace.as_ref().unwrap_or(namespace);
                name = format!("{name}/{own}");
            }
            format!("{} {name:?}", subject.kind)
        });
        let binding = if namespace.is_empty() {
            format!("ClusterRoleBinding {name:?}")
        } else {
            format!("RoleBinding {:?}", format!("{name}/{namespace}"))
        };
        let role = &self.role;
        format!(
            "RBAC: allowed by {binding} of {} {:?} to {subject}",
            role.kind, role.name
        )
    }
}

/// The user or group that a subject of a binding in `namespace` names.
fn identity(subject: &Subject, namespace: &str) -> Option<Identity> {
    let name = subject.name.clone();
    match subject.kind.as_str() {
        "User" => Some(Identity::User(name)),
        "Group" => Some(Identity::Group(name)),
        "ServiceAccount" => {
            let own = subject.namespace.as_deref().filter(|own| !own.is_empty());
            let namespace = own.unwrap_or(namespace);
            (!namespace.is_empty()).then(|| Identity::User(service_account(namespace, &name)))
        }
        _ => None,
    }
}

/// A reference to a ClusterRole.
pub(crate) fn cluster_role(name: &str) -> RoleRef {
    RoleRef {
        api_group: Some(GROUP.to_owned()),
        kind: "ClusterRole".to_owned(),
        name: name.to_owned(),
    }
}
