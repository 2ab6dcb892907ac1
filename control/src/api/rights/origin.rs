//! The client of a connection: its address, and the user whom its certificate names.

use std::net::IpAddr;
use std::time::SystemTime;

use dormouse_fleet::{Access, Peer};
use dormouse_rbac::User;
use dormouse_trust::Revocations;

use crate::api::Failure;

/// The client of a request's connection.
#[derive(Clone, Debug)]
pub(in crate::api) struct Origin(pub(super) Peer);

impl Origin {
    /// The client's address.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.0.address.map(|address| address.ip().to_canonical())
    }

    /// The user of the client's certificate, or the anonymous one; `None`: the listener has no TLS. Fails if the certificate was revoked.
    pub(super) fn user(&self, revocations: &Revocations) -> Result<Option<User>, Failure> {
        let client = match &self.0.access {
            Access::Trusted => return Ok(None),
            Access::PlainText | Access::Anonymous => return Ok(Some(User::anonymous())),
            Access::Certificate(client) => client,
        };
        let identity = &client.identity;
        if revocations.refuses(client) {
            return Err(Failure::unauthorized(format!("{identity} was revoked")));
        }
        // It was valid when the connection began.
        if !client.validity.contains(SystemTime::now()) {
            return Err(Failure::unauthorized(format!(
                "the certificate of {identity} has expired"
            )));
        }
        let user = User::authenticated(identity.name(), identity.groups());
        Ok(Some(user))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use dormouse_trust::{Client, Identity, Validity};

    use super::*;

    fn origin(access: Access) -> Origin {
        Origin(Peer {
            access,
            ..Peer::default()
        })
    }

    fn certificate(identity: Identity) -> Origin {
        let validity = Validity::issued(SystemTime::now(), Duration::from_hours(24), None);
        origin(Access::Certificate(Arc::new(Client { identity, validity })))
    }

    #[test]
    fn a_certificate_that_expires_on_an_open_connection_names_nobody() {
        let long_ago = SystemTime::now() - Duration::from_hours(48);
        let validity = Validity::issued(long_ago, Duration::from_hours(24), None);
        let identity = Identity::node("a").unwrap();
        let expired = Client { identity, validity };
        let origin = origin(Access::Certificate(Arc::new(expired)));
        let refused = origin.user(&Revocations::default()).unwrap_err();
        let expected = "the certificate of system:node:a has expired";
        assert_eq!(refused.message(), expected);
    }

    #[test]
    fn a_certificate_names_the_user_until_it_is_revoked() {
        let revocations = Revocations::default();
        let dev = vec!["dev".to_owned()];
        for (origin, want) in [
            (origin(Access::Trusted), None),
            (origin(Access::PlainText), Some(User::anonymous())),
            (origin(Access::Anonymous), Some(User::anonymous())),
            (
                certificate(Identity::node("a").unwrap()),
                Some(User::node("a")),
            ),
            (
                certificate(Identity::user("eve", dev).unwrap()),
                Some(User::authenticated("eve", ["dev"])),
            ),
            (
                certificate(Identity::control("store").unwrap()),
                Some(User::authenticated(
                    "system:control:store",
                    [dormouse_rbac::CONTROL],
                )),
            ),
        ] {
            assert_eq!(origin.user(&revocations).unwrap(), want, "{origin:?}");
        }
        revocations.revoke("a", SystemTime::now() + Duration::from_secs(1));
        let node = |name| certificate(Identity::node(name).unwrap()).user(&revocations);
        let refused = node("a").unwrap_err();
        assert_eq!(refused.message(), "system:node:a was revoked");
        assert!(node("b").is_ok());
    }
}
