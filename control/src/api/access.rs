//! Whether the client of a connection may send a request. Administrators and the control plane may send all; a node reads what it needs for
//! its Services; health checks need no identity. There are no roles for other users yet.

use std::sync::Arc;

use axum::{
    extract::{ConnectInfo, Request, State, connect_info::Connected},
    middleware::Next,
    response::{IntoResponse, Response},
    serve::IncomingStream,
};
use dormouse_fleet::{Access, Peer};
use dormouse_trust::{Identity, Revocations};
use http::Method;

use super::{Api, Failure};
use crate::listen::Clients;

/// The paths that need no identity, and those below them.
const OPEN: [&str; 3] = ["/healthz", "/livez", "/readyz"];
/// The lists and watches of a node.
const FOLLOWED: [&str; 2] = [
    "/api/v1/services",
    "/apis/discovery.k8s.io/v1/endpointslices",
];

/// The client of a request's connection.
#[derive(Clone, Debug)]
pub(super) struct Origin(Peer);

impl Connected<IncomingStream<'_, Clients>> for Origin {
    fn connect_info(stream: IncomingStream<'_, Clients>) -> Self {
        Self(stream.io().peer().clone())
    }
}

/// Answers a request that its client may not send.
pub(super) async fn check(
    State(api): State<Arc<Api>>,
    ConnectInfo(Origin(peer)): ConnectInfo<Origin>,
    request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    match allowed(&peer.access, (method, path), api.fleet.revocations()) {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

fn allowed(
    access: &Access,
    (method, path): (&Method, &str),
    revocations: &Revocations,
) -> Result<(), Failure> {
    let client = match access {
        Access::Trusted => return Ok(()),
        _ if is_open(path) => return Ok(()),
        Access::PlainText | Access::Anonymous => {
            return Err(Failure::unauthorized(
                "a client certificate is needed: use the administrator's kubeconfig, which control has written at its first start",
            ));
        }
        Access::Certificate(client) => client,
    };
    if revocations.refuses(client) {
        let message = format!("{} was revoked", client.identity);
        return Err(Failure::unauthorized(message));
    }
    let may = match &client.identity {
        Identity::Control(_) => true,
        Identity::Node(node) => method == Method::GET && is_for_node(path, node),
        user @ Identity::User { .. } => user.is_admin(),
    };
    if may {
        return Ok(());
    }
    let user = client.identity.name();
    Err(Failure::not_allowed(format!(
        "User \"{user}\" cannot {method} {path}"
    )))
}

fn is_open(path: &str) -> bool {
    OPEN.iter().any(|open| {
        let rest = path.strip_prefix(open);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn is_for_node(path: &str, node: &str) -> bool {
    FOLLOWED.contains(&path) || path.strip_prefix("/api/v1/nodes/") == Some(node)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use dormouse_trust::{Client, Validity};

    use super::*;

    fn certificate(identity: Identity) -> Access {
        let life = Duration::from_hours(24);
        let validity = Validity::issued(SystemTime::now(), life, None);
        Access::Certificate(Arc::new(Client { identity, validity }))
    }

    fn user(groups: &[&str]) -> Access {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        certificate(Identity::user("eve", groups).unwrap())
    }

    #[test]
    fn each_identity_may_send_exactly_what_the_table_says() {
        let revocations = Revocations::default();
        let node = || certificate(Identity::node("a").unwrap());
        let clients = [
            Access::Trusted,
            Access::Anonymous,
            node(),
            user(&["dev"]),
            user(&["system:masters"]),
            certificate(Identity::control("store").unwrap()),
        ];
        let requests = [
            ("GET", "/readyz", "yyyyyy"),
            ("GET", "/readyz/store", "yyyyyy"),
            ("GET", "/readyzx", "ynnnyy"),
            ("GET", "/api/v1/services", "ynynyy"),
            ("GET", "/apis/discovery.k8s.io/v1/endpointslices", "ynynyy"),
            ("GET", "/api/v1/nodes/a", "ynynyy"),
            ("GET", "/api/v1/nodes/b", "ynnnyy"),
            ("GET", "/api/v1/nodes", "ynnnyy"),
            ("DELETE", "/api/v1/nodes/a", "ynnnyy"),
            ("GET", "/api/v1/pods", "ynnnyy"),
            ("POST", "/apis/dormouse.dev/v1alpha1/jointokens", "ynnnyy"),
            ("GET", "/", "ynnnyy"),
        ];
        for (method, path, row) in requests {
            let method = method.parse().unwrap();
            let allowed = clients.iter().map(|access| {
                let allowed = allowed(access, (&method, path), &revocations);
                if allowed.is_ok() { 'y' } else { 'n' }
            });
            assert_eq!(allowed.collect::<String>(), row, "{method} {path}");
        }
        revocations.revoke("a", SystemTime::now() + Duration::from_secs(1));
        let request = (&Method::GET, "/api/v1/nodes/a");
        assert!(allowed(&node(), request, &revocations).is_err());
    }
}
