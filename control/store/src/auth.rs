//! Authentication and permissions: the users and roles of etcd's Auth service, logins, and the checks
//! of requests. [`State`] is pure; [`Auth`] is its shell with locks, tokens and hashing.

mod authority;
mod check;
mod error;
mod password;
mod permission;
mod roles;
mod state;
#[cfg(test)]
mod tests;
mod token;
mod users;

pub(crate) use authority::Unchanged;
pub use authority::{Auth, Credentials, Options};
pub use check::Caller;
pub(crate) use check::Check;
pub use error::AuthError;
pub use password::{BCRYPT_COSTS, PASSWORD_BYTES_MAX};
pub use permission::Right;
pub use state::{Change, State};

/// The user and the role with all permissions.
const ROOT: &str = "root";
