//! Operations on users: each returns its changes, or the reason for which it is refused.

use bytes::Bytes;

use super::{AuthError, Change, ROOT, State};
use crate::proto::authpb::{User, UserAddOptions};

impl State {
    /// Adds a user. The hash is `None` for a user that authenticates by certificate only.
    pub fn user_add(&self, name: &str, hash: Option<Bytes>) -> Result<Vec<Change>, AuthError> {
        self.check_new_user(name)?;
        let options = UserAddOptions {
            no_password: hash.is_none(),
        };
        Ok(vec![Change::PutUser(User {
            name: Bytes::copy_from_slice(name.as_bytes()),
            password: hash.unwrap_or_default(),
            roles: Vec::new(),
            options: Some(options),
        })])
    }

    /// Checks the name of a new user.
    pub fn check_new_user(&self, name: &str) -> Result<(), AuthError> {
        if name.is_empty() {
            return Err(AuthError::UserEmpty);
        }
        if self.users.contains_key(name) {
            return Err(AuthError::UserExists);
        }
        Ok(())
    }

    /// Deletes a user; `root` only while authentication is disabled.
    pub fn user_delete(&self, name: &str) -> Result<Vec<Change>, AuthError> {
        if self.enabled && name == ROOT {
            return Err(AuthError::InvalidManagement);
        }
        self.user(name)?;
        Ok(vec![Change::DeleteUser(name.into())])
    }

    /// Replaces the hash of a user's password; a user without a password keeps none.
    pub fn user_change_password(&self, name: &str, hash: Bytes) -> Result<Vec<Change>, AuthError> {
        let mut user = self.user(name)?.clone();
        user.password = if has_password(&user) {
            hash
        } else {
            Bytes::new()
        };
        Ok(vec![Change::PutUser(user)])
    }

    /// Grants a role to a user; the role `root` need not exist. No change if the user has it.
    pub fn user_grant_role(&self, name: &str, role: &str) -> Result<Vec<Change>, AuthError> {
        let mut user = self.user(name)?.clone();
        if role != ROOT {
            self.role(role)?;
        }
        let Err(index) = user.roles.binary_search_by(|own| own.as_str().cmp(role)) else {
            return Ok(Vec::new());
        };
        user.roles.insert(index, role.into());
        Ok(vec![Change::PutUser(user)])
    }

    /// Revokes a role from a user; `root` keeps its role while authentication is enabled.
    pub fn user_revoke_role(&self, name: &str, role: &str) -> Result<Vec<Change>, AuthError> {
        if self.enabled && name == ROOT && role == ROOT {
            return Err(AuthError::InvalidManagement);
        }
        let user = self.user(name)?;
        if !user.roles.iter().any(|own| own == role) {
            return Err(AuthError::RoleNotGranted);
        }
        Ok(vec![without_role(user, role)])
    }

    /// The hash that a login is checked against.
    pub fn login_hash(&self, name: &str) -> Result<Bytes, AuthError> {
        if !self.enabled {
            return Err(AuthError::NotEnabled);
        }
        let user = self.users.get(name).ok_or(AuthError::Failed)?;
        if !has_password(user) {
            return Err(AuthError::NoPassword);
        }
        Ok(user.password.clone())
    }
}

fn has_password(user: &User) -> bool {
    !user.options.is_some_and(|options| options.no_password)
}

/// The change of a user that loses a role.
pub(super) fn without_role(user: &User, role: &str) -> Change {
    let mut user = user.clone();
    user.roles.retain(|own| own != role);
    Change::PutUser(user)
}
