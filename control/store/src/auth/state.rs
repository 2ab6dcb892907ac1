//! The users, the roles and whether authentication is enabled, with the changes between two states.

use std::collections::{BTreeMap, HashMap};

use super::{AuthError, ROOT, permission::Permissions};
use crate::proto::authpb::{Role, User};

/// One part of a change. The operations of [`State`] return lists of them, which
/// [`State::apply`] then applies; a list is one revision.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Requests need a user from now on.
    Enable,
    /// Requests need no user from now on.
    Disable,
    /// Adds or replaces a user.
    PutUser(User),
    /// Removes the user of this name.
    DeleteUser(String),
    /// Adds or replaces a role.
    PutRole(Role),
    /// Removes the role of this name.
    DeleteRole(String),
}

/// Users, roles and their revision.
#[derive(Debug)]
pub struct State {
    pub(super) enabled: bool,
    revision: u64,
    pub(super) users: BTreeMap<String, User>,
    pub(super) roles: BTreeMap<String, Role>,
    /// Of each user, from the roles.
    permissions: HashMap<String, Permissions>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            enabled: false,
            revision: 1,
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
            permissions: HashMap::new(),
        }
    }
}

impl State {
    /// The state that changes of an empty one make, at a revision.
    pub(crate) fn restored(revision: u64, changes: Vec<Change>) -> Self {
        let mut state = Self::default();
        state.apply(changes);
        state.revision = revision;
        state
    }

    /// The changes of an empty state that make this one.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> {
        let roles = self.roles.values().cloned().map(Change::PutRole);
        let users = self.users.values().cloned().map(Change::PutUser);
        let enabled = self.enabled.then_some(Change::Enable);
        roles.chain(users).chain(enabled)
    }

    /// Whether requests need a user.
    pub fn enabled(&self) -> bool {
        self.enabled
    }

    /// Number of changes, plus 1.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The names of all users, in order.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.keys().map(String::as_str)
    }

    /// The names of all roles, in order.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.roles.keys().map(String::as_str)
    }

    /// The user of a name.
    pub fn user(&self, name: &str) -> Result<&User, AuthError> {
        self.users.get(name).ok_or(AuthError::UserNotFound)
    }

    /// The role of a name.
    pub fn role(&self, name: &str) -> Result<&Role, AuthError> {
        self.roles.get(name).ok_or(AuthError::RoleNotFound)
    }

    /// Enables authentication, which needs a user `root` with the role `root`; no change if it is.
    pub fn enable(&self) -> Result<Vec<Change>, AuthError> {
        if self.enabled {
            return Ok(Vec::new());
        }
        let root = self.users.get(ROOT).ok_or(AuthError::RootUserMissing)?;
        if !is_root(root) {
            return Err(AuthError::RootRoleMissing);
        }
        Ok(vec![Change::Enable])
    }

    /// Disables authentication; no change if it is.
    pub fn disable(&self) -> Vec<Change> {
        self.enabled
            .then_some(Change::Disable)
            .into_iter()
            .collect()
    }

    /// Applies the changes of one operation. All of them make one revision, except none and
    /// [`Change::Enable`], as in etcd.
    pub fn apply(&mut self, changes: Vec<Change>) {
        let counted = |change: &Change| !matches!(change, Change::Enable);
        self.revision += u64::from(changes.iter().any(counted));
        for change in changes {
            match change {
                Change::Enable => self.enabled = true,
                Change::Disable => self.enabled = false,
                Change::PutUser(user) => self.put_user(user),
                Change::DeleteUser(name) => {
                    self.users.remove(&name);
                    self.permissions.remove(&name);
                }
                Change::PutRole(role) => {
                    let name = text(&role.name);
                    self.roles.insert(name.clone(), role);
                    self.update_members(&name);
                }
                Change::DeleteRole(name) => {
                    self.roles.remove(&name);
                    self.update_members(&name);
                }
            }
        }
    }

    fn put_user(&mut self, user: User) {
        let name = text(&user.name);
        let permissions = self.merged_permissions(&user);
        self.permissions.insert(name.clone(), permissions);
        self.users.insert(name, user);
    }

    /// Merges the permissions of the users with a role that has changed.
    fn update_members(&mut self, role: &str) {
        for (name, user) in &self.users {
            if user.roles.iter().any(|own| own == role) {
                let permissions = self.merged_permissions(user);
                self.permissions.insert(name.clone(), permissions);
            }
        }
    }

    fn merged_permissions(&self, user: &User) -> Permissions {
        Permissions::new(user.roles.iter().filter_map(|role| self.roles.get(role)))
    }

    pub(super) fn permissions(&self, user: &str) -> Option<&Permissions> {
        self.permissions.get(user)
    }
}

/// A name of authpb, whose fields are bytes, from a request, whose fields are UTF-8.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub(super) fn is_root(user: &User) -> bool {
    user.roles.iter().any(|role| role == ROOT)
}
