//! The user of a request: that of its connection, else of its bearer token, else the anonymous one.

use std::sync::Arc;
use std::time::SystemTime;

use dormouse_cluster::ClientError;
use dormouse_rbac::{ANONYMOUS, User, node_of};
use futures::future::BoxFuture;
use http::{HeaderMap, header};

use super::ending::Credential;
use crate::api::Failure;

/// Knows the users of bearer tokens.
pub trait Authenticator: Send + Sync {
    /// The owner of a token; `None`: the token is not valid.
    fn bearer<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<Bearer>, ClientError>>;
}

/// The owner of a token that is valid.
#[derive(Clone, Debug)]
pub struct Bearer {
    /// The user.
    pub user: User,
    /// The token's id.
    pub id: String,
    /// When the token expires.
    pub expires: SystemTime,
}

/// The sender of a request.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) user: User,
    /// What may end while the request is answered.
    pub(super) credential: Option<Credential>,
}

impl Sender {
    fn connected(user: User) -> Self {
        let credential = node_of(&user).map(|name| Credential::Node(name.to_owned()));
        Self { user, credential }
    }
}

impl From<Bearer> for Sender {
    fn from(Bearer { user, id, expires }: Bearer) -> Self {
        let credential = Some(Credential::Token { id, expires });
        Self { user, credential }
    }
}

/// The sender of a request. Without an authenticator, a request whose connection has no user is the administrator's: the listener accepts
/// plain text on trusted addresses only.
pub(super) async fn sender_of(
    connected: Option<User>,
    headers: &HeaderMap,
    authenticator: Option<&Arc<dyn Authenticator>>,
) -> Result<Sender, Failure> {
    let authenticator = match (connected, authenticator) {
        (Some(user), _) if user.name != ANONYMOUS => return Ok(Sender::connected(user)),
        (connected, None) => {
            return Ok(Sender::connected(connected.unwrap_or_else(User::admin)));
        }
        (_, Some(authenticator)) => authenticator,
    };
    match bearer(headers) {
        None => Ok(Sender::connected(User::anonymous())),
        Some(token) => {
            let bearer = authenticator.bearer(token).await;
            let bearer = bearer.map_err(|error| Failure::unavailable(&error.to_string()))?;
            let bearer = bearer.ok_or_else(|| Failure::unauthorized("Unauthorized"))?;
            Ok(bearer.into())
        }
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
    use std::future::ready;

    use futures::FutureExt;

    use super::*;

    struct One;

    impl Authenticator for One {
        fn bearer<'a>(
            &'a self,
            token: &'a str,
        ) -> BoxFuture<'a, Result<Option<Bearer>, ClientError>> {
            let bearer = (token == "right").then(|| Bearer {
                user: User::authenticated("ann", ["dev"]),
                id: token.to_owned(),
                expires: SystemTime::now(),
            });
            ready(Ok(bearer)).boxed()
        }
    }

    /// The name of the user of a request whose connection has this user.
    fn name(connected: Option<User>, authorization: &str, is_configured: bool) -> Option<String> {
        let value = authorization.parse().unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
        let one: Arc<dyn Authenticator> = Arc::new(One);
        let sender = sender_of(connected, &headers, is_configured.then_some(&one));
        let sender = sender.now_or_never().unwrap();
        sender.ok().map(|sender| sender.user.name)
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
