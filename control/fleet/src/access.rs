//! Whether the client of a connection may open a node's stream: by its certificate, or from this process. Pure.

use dormouse_trust::Revocations;

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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use dormouse_trust::{Client, Identity, Validity};

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
        assert_eq!(of(&node), Ok(()));
        assert_eq!(of(&Access::Trusted), Ok(()));
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
        revocations.revoke("a", SystemTime::now());
        let error = node.of_node("a", &revocations).unwrap_err();
        assert!(
            error.to_string().contains("token create --node a"),
            "{error}"
        );
    }
}
