//! The node of each open stream: a second host with the name of a connected node is refused, and the stream of a revoked node is ended. Pure.

use std::collections::HashMap;
use std::net::IpAddr;

use tokio_util::sync::CancellationToken;

use crate::root::Session;

/// The host that opens a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Its address.
    pub(crate) address: Option<IpAddr>,
    /// Its boot id.
    pub(crate) boot_id: String,
}

/// A name that another host has.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "node {node} is connected from {by} already, this agent connects from {from}: two hosts have one name; start one of them with another --node, or wait until the other's connection has ended"
)]
pub(crate) struct NameTaken {
    node: String,
    by: String,
    from: String,
}

/// The open streams by the names of their nodes.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, Held>);

#[derive(Debug)]
struct Held {
    session: Session,
    origin: Origin,
    /// Ends the stream.
    closed: CancellationToken,
}

impl Names {
    /// Refuses the name of a node that is connected from another host. An agent that connects again from its own takes over.
    pub(crate) fn check(&self, node: &str, origin: &Origin) -> Result<(), NameTaken> {
        match self.0.get(node) {
            Some(held) if held.origin != *origin => Err(NameTaken {
                node: node.to_owned(),
                by: text(held.origin.address),
                from: text(origin.address),
            }),
            _ => Ok(()),
        }
    }

    /// The stream of a node; `closed` ends it.
    pub(crate) fn hold(
        &mut self,
        node: String,
        session: Session,
        origin: Origin,
        closed: CancellationToken,
    ) {
        let held = Held {
            session,
            origin,
            closed,
        };
        self.0.insert(node, held);
    }

    /// A stream has ended.
    pub(crate) fn release(&mut self, node: &str, session: Session) {
        if self.0.get(node).is_some_and(|held| held.session == session) {
            self.0.remove(node);
        }
    }

    /// Whether a node has a stream.
    pub(crate) fn contains(&self, node: &str) -> bool {
        self.0.contains_key(node)
    }

    /// Ends the stream of a node.
    pub(crate) fn end(&self, node: &str) {
        if let Some(held) = self.0.get(node) {
            held.closed.cancel();
        }
    }
}

fn text(address: Option<IpAddr>) -> String {
    address.map_or_else(
        || "an unknown address".to_owned(),
        |address| address.to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(address: &str, boot_id: &str) -> Origin {
        Origin {
            address: Some(address.parse().unwrap()),
            boot_id: boot_id.to_owned(),
        }
    }

    #[test]
    fn a_second_host_with_a_connected_nodes_name_is_refused_until_that_has_left() {
        let mut names = Names::default();
        let first = origin("2001:db8::1", "boot");
        let closed = CancellationToken::new();
        names.hold("a".into(), Session(1), first.clone(), closed.clone());
        assert_eq!(names.check("a", &first), Ok(()));
        assert_eq!(names.check("b", &origin("2001:db8::2", "boot")), Ok(()));
        let error = names
            .check("a", &origin("2001:db8::2", "boot"))
            .unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("2001:db8::1") && error.contains("2001:db8::2"),
            "{error}"
        );
        assert!(names.check("a", &origin("2001:db8::1", "other")).is_err());

        // The same host takes over; the end of the earlier stream changes nothing.
        names.hold("a".into(), Session(2), first, CancellationToken::new());
        names.release("a", Session(1));
        assert!(names.check("a", &origin("2001:db8::2", "boot")).is_err());
        names.release("a", Session(2));
        assert_eq!(names.check("a", &origin("2001:db8::2", "boot")), Ok(()));
        assert!(!closed.is_cancelled());
    }
}
