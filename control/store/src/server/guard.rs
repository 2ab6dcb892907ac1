//! Authentication of requests, before any service reads them: the user of a request, and whether its
//! method needs one.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};

use tokio_util::either::Either;
use tonic::{
    Code, Request, Status,
    body::Body,
    codegen::{
        Service,
        http::{Extensions, Request as HttpRequest, Response as HttpResponse},
    },
};
use tower_layer::Layer;

use super::accept::Peer;
use crate::{
    Store,
    auth::{AuthError, Credentials},
};

/// Metadata with the token of a login: etcd's clients, and proxies of its HTTP gateway.
const TOKENS: [&str; 2] = ["token", "authorization"];

/// What a method needs besides the permissions of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Its service checks all.
    Nothing,
    User,
    Root,
}

impl Need {
    fn of(path: &str) -> Self {
        let Some((service, method)) = path
            .strip_prefix("/etcdserverpb.")
            .and_then(|path| path.split_once('/'))
        else {
            return Self::Nothing;
        };
        match (service, method) {
            ("Auth", "Authenticate" | "UserGet" | "RoleGet") => Self::Nothing,
            ("Maintenance", "Status" | "Alarm")
            | ("Cluster", "MemberList")
            | (
                "Lease",
                "LeaseGrant" | "LeaseRevoke" | "LeaseTimeToLive" | "LeaseLeases" | "LeaseKeepAlive",
            ) => Self::User,
            ("Auth" | "Maintenance" | "Cluster", _) => Self::Root,
            _ => Self::Nothing,
        }
    }
}

/// The layer that refuses requests to methods for which their user does not suffice.
#[derive(Clone, Debug)]
pub(super) struct GuardLayer(pub(super) Store);

impl<R> Layer<R> for GuardLayer {
    type Service = Guard<R>;

    fn layer(&self, router: R) -> Guard<R> {
        Guard {
            store: self.0.clone(),
            router,
        }
    }
}

/// The service of [`GuardLayer`].
#[derive(Clone, Debug)]
pub(super) struct Guard<R> {
    store: Store,
    router: R,
}

impl<R> Service<HttpRequest<Body>> for Guard<R>
where
    R: Service<HttpRequest<Body>, Response = HttpResponse<Body>, Error = Infallible>,
{
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Either<R::Future, Ready<Result<HttpResponse<Body>, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.router.poll_ready(context)
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        match check(&self.store, &request) {
            Ok(()) => Either::Left(self.router.call(request)),
            Err(error) => Either::Right(ready(Ok(Status::from(error).into_http()))),
        }
    }
}

/// Checks the user of a request. Without authentication all requests pass.
fn check<B>(store: &Store, request: &HttpRequest<B>) -> Result<(), AuthError> {
    let auth = store.auth();
    if !auth.enabled() {
        return Ok(());
    }
    let need = Need::of(request.uri().path());
    if need == Need::Nothing {
        return Ok(());
    }
    let headers = request.headers();
    let caller = auth.caller(&credentials(
        |name| headers.get(name)?.to_str().ok(),
        request.extensions(),
    ))?;
    auth.read(|state| match need {
        Need::Root => state.check_root(&caller),
        Need::User | Need::Nothing => state.check_user(&caller),
    })
}

/// The credentials of a request.
pub(super) fn of_request<T>(request: &Request<T>) -> Credentials {
    let metadata = request.metadata();
    let get = |name| metadata.get(name)?.to_str().ok();
    credentials(get, request.extensions())
}

fn credentials<'a>(
    get: impl Fn(&'static str) -> Option<&'a str>,
    extensions: &Extensions,
) -> Credentials {
    let token = TOKENS.into_iter().find_map(get);
    let token = token.map(|text| text.strip_prefix("Bearer ").unwrap_or(text));
    Credentials {
        token: token.map(Into::into),
        common_name: extensions
            .get::<Peer>()
            .and_then(|peer| peer.common_name.clone()),
    }
}

impl From<AuthError> for Status {
    fn from(error: AuthError) -> Self {
        let code = match error {
            AuthError::RootUserMissing
            | AuthError::RootRoleMissing
            | AuthError::UserExists
            | AuthError::UserNotFound
            | AuthError::RoleExists
            | AuthError::RoleNotFound
            | AuthError::RoleNotGranted
            | AuthError::PermissionNotGranted
            | AuthError::NotEnabled => Code::FailedPrecondition,
            AuthError::UserEmpty
            | AuthError::RoleEmpty
            | AuthError::Failed
            | AuthError::PermissionNotGiven
            | AuthError::InvalidManagement
            | AuthError::OldRevision => Code::InvalidArgument,
            AuthError::PermissionDenied => Code::PermissionDenied,
            AuthError::InvalidToken => Code::Unauthenticated,
            AuthError::NoPassword | AuthError::PasswordTooLong => Code::Unknown,
            AuthError::Hashing => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_show_or_change_more_than_keys_need_the_root_role() {
        for path in ["Auth/UserAdd", "Maintenance/Snapshot", "Cluster/MemberAdd"] {
            assert_eq!(
                Need::of(&format!("/etcdserverpb.{path}")),
                Need::Root,
                "{path}"
            );
        }
    }

    #[test]
    fn methods_of_keys_are_checked_by_their_services() {
        for path in ["KV/Range", "KV/Txn", "Watch/Watch", "Auth/Authenticate"] {
            assert_eq!(
                Need::of(&format!("/etcdserverpb.{path}")),
                Need::Nothing,
                "{path}"
            );
        }
        assert_eq!(Need::of("/v3lockpb.Lock/Lock"), Need::Nothing);
    }

    #[test]
    fn the_token_is_read_from_either_name() {
        let token = |known: &[(&str, &'static str)]| {
            let get = |name| {
                known
                    .iter()
                    .find(|(own, _)| *own == name)
                    .map(|(_, value)| *value)
            };
            credentials(get, &Extensions::new())
                .token
                .map(|token| token.to_string())
        };
        assert_eq!(token(&[]), None);
        let proxy = ("authorization", "Bearer b.2");
        assert_eq!(token(&[proxy]).as_deref(), Some("b.2"));
        assert_eq!(token(&[proxy, ("token", "a.1")]).as_deref(), Some("a.1"));
    }
}
