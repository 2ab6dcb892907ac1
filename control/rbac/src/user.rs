//! Users: the name and the groups by which bindings refer to them, as Kubernetes' `user.Info`.

/// Group of the users who may do everything, whatever the policy is.
pub const MASTERS: &str = "system:masters";
/// Group of all users whose credentials were accepted.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of requests without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group of the nodes.
pub const NODES: &str = "system:nodes";
/// Group of the roles of the control plane.
pub const CONTROL: &str = "system:control";
/// Group of the readers of each health check.
pub const MONITORING: &str = "system:monitoring";
/// User of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";

/// The sender of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The groups, [`AUTHENTICATED`] or [`UNAUTHENTICATED`] among them.
    pub groups: Vec<String>,
}

impl User {
    /// A user whose credentials were accepted.
    pub fn authenticated(
        name: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self {
            name: name.into(),
            groups,
        }
    }

    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
        }
    }

    /// The administrator, who is in [`MASTERS`].
    pub fn admin() -> Self {
        Self::authenticated("system:admin", [MASTERS])
    }

    /// A node.
    pub fn node(name: &str) -> Self {
        Self::authenticated(format!("system:node:{name}"), [NODES])
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }

    /// Whether the user may do everything.
    pub fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }
}

/// The user name of a service account.
pub fn service_account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
