//! The user of a request: that of its connection, else of its bearer token, else the anonymous one.

use std::sync::Arc;

use dormouse_rbac::{ANONYMOUS, User};
use http::{HeaderMap, header};

use crate::api::Failure;

/// Knows the users of bearer tokens.
pub trait Authenticator: Send + Sync {
    /// The user of a token; `None`: the token is not valid.
    fn user(&self, token: &str) -> Option<User>;
}

/// The user of a request. Without an authenticator, a request whose connection has none is the administrator's: the listener accepts
/// plain text on trusted addresses only.
pub(super) fn user_of(
    connected: Option<User>,
    headers: &HeaderMap,
    authenticator: Option<&Arc<dyn Authenticator>>,
) -> Result<User, Failure> {
    let authenticator = match (connected, authenticator) {
        (Some(user), _) if user.name != ANONYMOUS => return Ok(user),
        (connected, None) => return Ok(connected.unwrap_or_else(User::admin)),
        (_, Some(authenticator)) => authenticator,
    };
    match bearer(headers) {
        None => Ok(User::anonymous()),
        Some(token) => authenticator
            .user(token)
            .ok_or_else(|| Failure::unauthorized("Unauthorized")),
    }
}

/// The token of the header `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;

    impl Authenticator for One {
        fn user(&self, token: &str) -> Option<User> {
            (token == "right").then(|| User::authenticated("ann", ["dev"]))
        }
    }

    /// The name of the user of a request whose connection has this user.
    fn name(connected: Option<User>, authorization: &str, is_configured: bool) -> Option<String> {
        let value = authorization.parse().unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
        let one: Arc<dyn Authenticator> = Arc::new(One);
        let user = user_of(connected, &headers, is_configured.then_some(&one));
        user.ok().map(|user| user.name)
    }

    #[test]
    fn the_connection_comes_before_the_token_and_without_both_the_user_is_anonymous() {
        let eve = || Some(User::authenticated("eve", ["dev"]));
        let anonymous = || Some(User::anonymous());
        for (connected, authorization, want) in [
            (None, "", Some("system:anonymous")),
            (None, "Basic right", Some("system:anonymous")),
            (None, "Bearer right", Some("ann")),
            (None, "bearer  right", Some("ann")),
            (None, "Bearer wrong", None),
            (anonymous(), "Bearer right", Some("ann")),
            (anonymous(), "Bearer wrong", None),
            (eve(), "Bearer right", Some("eve")),
            (eve(), "", Some("eve")),
        ] {
            assert_eq!(
                name(connected, authorization, true).as_deref(),
                want,
                "{authorization}"
            );
        }
        assert_eq!(
            name(None, "Bearer wrong", false).as_deref(),
            Some("system:admin")
        );
        assert_eq!(
            name(anonymous(), "", false).as_deref(),
            Some("system:anonymous")
        );
        assert_eq!(name(eve(), "", false).as_deref(), Some("eve"));
    }
}
