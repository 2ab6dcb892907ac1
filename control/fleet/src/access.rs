//! Whether the client of a connection may open a node's stream, or is of the control plane: by its certificate, or from this process. Pure.

use std::time::SystemTime;

use dormouse_trust::server::administers;
use dormouse_trust::{Identity, Revocations};

use crate::connection::Access;

/// The reason for which a client may not open a node's stream.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    /// The agent has no certificate yet.
    #[error(
        "control speaks TLS, and this agent does not: run `dormouse token create --node {0}`, and start the agent with --join and the line that it prints"
    )]
    PlainText(String),
    /// The certificate is of something else than this node.
    #[error(
        "this agent has the certificate of {has}, not of the node {node}: it must join with that name"
    )]
    Other {
        /// The identity of the certificate.
        has: String,
        /// The node.
        node: String,
    },
    /// The certificate is of no node.
    #[error("this is the certificate of {0}, which is no node")]
    NoNode(String),
    /// The node was revoked after the certificate was issued.
    #[error(
        "node {0} was revoked: to admit it again, run `dormouse token create --node {0}`, and start the agent with --join and the line that it prints"
    )]
    Revoked(String),
}

impl Access {
    /// Whether the client may open this node's stream.
    pub(crate) fn of_node(&self, node: &str, revocations: &Revocations) -> Result<(), Denied> {
        let client = match self {
            Self::Trusted => return Ok(()),
            Self::PlainText | Self::Anonymous => return Err(Denied::PlainText(node.to_owned())),
            Self::Certificate(client) => client,
        };
        if !client.identity.is_node(node) {
            return Err(Denied::Other {
                has: client.identity.to_string(),
                node: node.to_owned(),
            });
        }
        if revocations.refuses(client) {
            return Err(Denied::Revoked(node.to_owned()));
        }
        Ok(())
    }

    /// Whether the client is an administrator or a role of the control plane, by its certificate. Certificates may expire on open connections.
    pub fn administers(&self, now: SystemTime) -> bool {
        match self {
            Self::Certificate(client) => {
                administers(&client.identity) && client.validity.contains(now)
            }
            Self::Trusted | Self::PlainText | Self::Anonymous => false,
        }
    }

    /// Whether the client is a node that may open its stream.
    pub(crate) fn of_any_node(&self, revocations: &Revocations) -> Result<(), Denied> {
        let Self::Certificate(client) = self else {
            return self.of_node("NAME", revocations);
        };
        match &client.identity {
            Identity::Node(node) => self.of_node(node, revocations),
            other => Err(Denied::NoNode(other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use dormouse_trust::{Client, Validity};

    use super::*;

    fn certificate(identity: Identity) -> Access {
        let life = Duration::from_hours(24);
        let validity = Validity::issued(SystemTime::UNIX_EPOCH + life, life, None);
        Access::Certificate(Arc::new(Client { identity, validity }))
    }

    #[test]
    fn only_a_node_with_its_own_certificate_speaks_for_it() {
        let revocations = Revocations::default();
        let of = |access: &Access| access.of_node("a", &revocations);
        let node = certificate(Identity::node("a").unwrap());
        let of_any = |access: &Access| access.of_any_node(&revocations);
        assert_eq!((of(&node), of_any(&node)), (Ok(()), Ok(())));
        assert_eq!(of(&Access::Trusted), Ok(()));
        assert_eq!(of_any(&Access::Trusted), Ok(()));
        assert_eq!(of_any(&certificate(Identity::node("b").unwrap())), Ok(()));
        let groups = vec!["system:nodes".to_owned()];
        for other in [
            Access::Anonymous,
            Access::PlainText,
            certificate(Identity::node("b").unwrap()),
            certificate(Identity::control("a").unwrap()),
            certificate(Identity::user("a", groups).unwrap()),
        ] {
            assert!(of(&other).is_err(), "{other:?}");
        }
        for other in [
            Access::Anonymous,
            Access::PlainText,
            certificate(Identity::control("a").unwrap()),
        ] {
            assert!(of_any(&other).is_err(), "{other:?}");
        }
        revocations.revoke("a", SystemTime::now());
        assert!(of_any(&node).is_err());
        let error = node.of_node("a", &revocations).unwrap_err();
        assert!(
            error.to_string().contains("token create --node a"),
            "{error}"
        );
    }
    #[test]
    fn administrators_and_roles_administer_while_their_certificates_are_valid() {
        let day = Duration::from_hours(24);
        let now = SystemTime::UNIX_EPOCH + day + day / 2;
        let masters = vec!["system:masters".to_owned()];
        for admitted in [
            certificate(Identity::control("scheduler").unwrap()),
            certificate(Identity::user("eve", masters).unwrap()),
        ] {
            assert!(admitted.administers(now), "{admitted:?}");
            assert!(!admitted.administers(now + day), "{admitted:?}");
        }
        let dev = vec!["dev".to_owned()];
        for other in [
            Access::Trusted,
            Access::PlainText,
            Access::Anonymous,
            certificate(Identity::node("a").unwrap()),
            certificate(Identity::user("eve", dev).unwrap()),
        ] {
            assert!(!other.administers(now), "{other:?}");
        }
    }
}
