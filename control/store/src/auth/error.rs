//! Errors of authentication and of permission checks, with etcd's texts: clients compare them.

/// An error of the Auth service or of a permission check. The request changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Authentication is enabled without a user `root`.
    #[error("etcdserver: root user does not exist")]
    RootUserMissing,
    /// Authentication is enabled while the user `root` lacks the role `root`.
    #[error("etcdserver: root user does not have root role")]
    RootRoleMissing,
    /// The name of a new user is taken.
    #[error("etcdserver: user name already exists")]
    UserExists,
    /// A request without a token, or a user without a name.
    #[error("etcdserver: user name is empty")]
    UserEmpty,
    /// No user has the name.
    #[error("etcdserver: user name not found")]
    UserNotFound,
    /// The name of a new role is taken.
    #[error("etcdserver: role name already exists")]
    RoleExists,
    /// No role has the name.
    #[error("etcdserver: role name not found")]
    RoleNotFound,
    /// The name of a new role is empty.
    #[error("etcdserver: role name is empty")]
    RoleEmpty,
    /// The user does not exist, or the password is another one.
    #[error("etcdserver: authentication failed, invalid user ID or password")]
    Failed,
    /// The user has no password, only a certificate.
    #[error("auth: authentication failed, password was given for no password user")]
    NoPassword,
    /// The password exceeds the input of bcrypt, [`super::PASSWORD_BYTES_MAX`].
    #[error("bcrypt: password length exceeds 72 bytes")]
    PasswordTooLong,
    /// A grant without a permission.
    #[error("etcdserver: permission not given")]
    PermissionNotGiven,
    /// The user lacks the permission.
    #[error("etcdserver: permission denied")]
    PermissionDenied,
    /// The user does not have the role.
    #[error("etcdserver: role is not granted to the user")]
    RoleNotGranted,
    /// The role does not have the permission.
    #[error("etcdserver: permission is not granted to the role")]
    PermissionNotGranted,
    /// A login while authentication is disabled.
    #[error("etcdserver: authentication is not enabled")]
    NotEnabled,
    /// The token is unknown or expired: the client logs in again.
    #[error("etcdserver: invalid auth token")]
    InvalidToken,
    /// An empty range in a permission, or an attempt to remove `root` while authentication is enabled.
    #[error("etcdserver: invalid auth management")]
    InvalidManagement,
    /// Users or roles changed while the request ran: the client tries again.
    #[error("etcdserver: revision of auth store is old")]
    OldRevision,
    /// A password could not be hashed: the server shuts down or has no source of randomness.
    #[error("the password could not be hashed; try again, or see the server's log")]
    Hashing,
}
