//! Operations on roles: each returns its changes, or the reason for which it is refused.

use bytes::Bytes;

use super::{AuthError, Change, ROOT, State, permission::Span, users::without_role};
use crate::proto::authpb::{Permission, Role, permission::Type};

impl State {
    /// Adds a role without permissions.
    pub fn role_add(&self, name: &str) -> Result<Vec<Change>, AuthError> {
        if name.is_empty() {
            return Err(AuthError::RoleEmpty);
        }
        if self.roles.contains_key(name) {
            return Err(AuthError::RoleExists);
        }
        Ok(vec![Change::PutRole(Role {
            name: Bytes::copy_from_slice(name.as_bytes()),
            key_permission: Vec::new(),
        })])
    }

    /// Deletes a role and revokes it from its users; `root` only while authentication is disabled.
    pub fn role_delete(&self, name: &str) -> Result<Vec<Change>, AuthError> {
        if self.enabled && name == ROOT {
            return Err(AuthError::InvalidManagement);
        }
        self.role(name)?;
        let members = self.users.values();
        let members = members.filter(|user| user.roles.iter().any(|role| role == name));
        let mut changes: Vec<Change> = members.map(|user| without_role(user, name)).collect();
        changes.push(Change::DeleteRole(name.into()));
        Ok(changes)
    }

    /// The permissions of a role; those of `root` are all.
    pub fn role_permissions(&self, name: &str) -> Result<Vec<Permission>, AuthError> {
        let role = self.role(name)?;
        if name != ROOT {
            return Ok(role.key_permission.clone());
        }
        Ok(vec![Permission {
            perm_type: Type::Readwrite.into(),
            key: Bytes::new(),
            range_end: Bytes::from_static(b"\0"),
        }])
    }

    /// Grants a permission to a role; it replaces the one on the same range. The permissions are in
    /// the order of their keys, those of one key in the order of the grants.
    pub fn role_grant(
        &self,
        name: &str,
        permission: Option<Permission>,
    ) -> Result<Vec<Change>, AuthError> {
        let permission = permission.ok_or(AuthError::PermissionNotGiven)?;
        if !Span::new(&permission.key, &permission.range_end).is_grantable() {
            return Err(AuthError::InvalidManagement);
        }
        let mut role = self.role(name)?.clone();
        let granted = &mut role.key_permission;
        let same =
            |other: &&mut Permission| same_range(other, &permission.key, &permission.range_end);
        if let Some(existing) = granted.iter_mut().find(same) {
            existing.perm_type = permission.perm_type;
        } else {
            let index = granted.partition_point(|other| other.key <= permission.key);
            granted.insert(index, permission);
        }
        Ok(vec![Change::PutRole(role)])
    }

    /// Revokes the permission on a range from a role.
    pub fn role_revoke(
        &self,
        name: &str,
        key: &[u8],
        range_end: &[u8],
    ) -> Result<Vec<Change>, AuthError> {
        let mut role = self.role(name)?.clone();
        let before = role.key_permission.len();
        role.key_permission
            .retain(|permission| !same_range(permission, key, range_end));
        if role.key_permission.len() == before {
            return Err(AuthError::PermissionNotGranted);
        }
        Ok(vec![Change::PutRole(role)])
    }
}

fn same_range(permission: &Permission, key: &[u8], range_end: &[u8]) -> bool {
    permission.key == key && permission.range_end == range_end
}
