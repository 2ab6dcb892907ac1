//! The clients that may read what an agent serves beside its health: processes of its node, administrators and roles of the control plane by their
//! certificates, and sources that the operator names.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dormouse_agent_services::Prefix;
use dormouse_fleet::Peer;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};

/// The answer to other clients.
const REFUSED: &str = "only processes of this node, administrators and roles of the control plane (by certificates), and sources of --metrics-from may read this\n";

/// The sources that may read without a certificate, beside this node.
pub type Readers = Arc<[Prefix]>;

/// Answers a client that may not read with the status 403.
pub(super) async fn admit(
    State(readers): State<Readers>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    if may_read(&readers, &peer, SystemTime::now()) {
        return next.run(request).await;
    }
    (StatusCode::FORBIDDEN, REFUSED).into_response()
}

fn may_read(readers: &Readers, peer: &Peer, now: SystemTime) -> bool {
    if peer.access.administers(now) {
        return true;
    }
    let Some(address) = peer.address.map(|address| address.ip().to_canonical()) else {
        return false;
    };
    readers.iter().any(|prefix| prefix.contains(address)) || is_here(address)
}

/// Whether an address is local to this machine. A link-local one is on each link another host's.
fn is_here(address: IpAddr) -> bool {
    if matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
        return false;
    }
    let own = |interface: InterfaceAddress| {
        let found = interface.address?;
        let v4 = found.as_sockaddr_in().map(|found| IpAddr::V4(found.ip()));
        v4.or_else(|| found.as_sockaddr_in6().map(|found| IpAddr::V6(found.ip())))
    };
    address.is_loopback()
        || getifaddrs().is_ok_and(|mut all| all.any(|one| own(one) == Some(address)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dormouse_fleet::Access;
    use dormouse_trust::{Client, Identity, Validity};

    use super::*;

    fn peer(address: &str, access: Access) -> Peer {
        Peer {
            address: Some((address.parse::<IpAddr>().unwrap(), 1).into()),
            access,
            ..Peer::default()
        }
    }

    fn certificate(identity: Identity) -> Access {
        let validity = Validity::issued(SystemTime::now(), Duration::from_hours(24), None);
        Access::Certificate(Arc::new(Client { identity, validity }))
    }

    #[test]
    fn pods_and_other_hosts_read_only_with_a_certificate_or_from_a_source_that_is_named() {
        let named = Prefix::parse("2001:db8:7::/64").unwrap();
        let readers: Readers = Arc::from([named]);
        let reads = |peer: &Peer| may_read(&readers, peer, SystemTime::now());
        for here in ["::1", "127.0.0.1", "::ffff:127.0.0.1", "2001:db8:7::5"] {
            for access in [Access::Trusted, Access::PlainText, Access::Anonymous] {
                assert!(reads(&peer(here, access)), "{here}");
            }
        }
        let other = "2001:db8::99";
        for access in [Access::Trusted, Access::PlainText, Access::Anonymous] {
            assert!(!reads(&peer(other, access)));
        }
        let admin = Identity::user("eve", vec!["system:masters".to_owned()]).unwrap();
        let user = Identity::user("ann", vec!["dev".to_owned()]).unwrap();
        for (identity, want) in [
            (Identity::control("up").unwrap(), true),
            (admin, true),
            (user, false),
            (Identity::node("n").unwrap(), false),
        ] {
            assert_eq!(reads(&peer(other, certificate(identity))), want);
        }
        assert!(!reads(&Peer::default()));
    }
}
