//! Revoked nodes: their certificates of before the revocation are refused, although they are valid for hours yet. A node that joins again, with a
//! new token, gets one that is valid from after it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;

use crate::identity::Identity;
use crate::server::Client;

/// When each revoked node was revoked, in whole seconds: certificates have no smaller unit.
#[derive(Debug, Default)]
pub struct Revocations(RwLock<BTreeMap<String, SystemTime>>);

impl Revocations {
    /// Refuses the certificates of a node that begin at `at` or before.
    pub fn revoke(&self, node: &str, at: SystemTime) {
        let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let at = UNIX_EPOCH + Duration::from_secs(seconds);
        let mut revoked = self.0.write();
        let last = revoked.entry(node.to_owned()).or_insert(at);
        *last = (*last).max(at);
    }

    /// Whether the certificate of a client is revoked.
    pub fn refuses(&self, client: &Client) -> bool {
        let Identity::Node(node) = &client.identity else {
            return false;
        };
        let revoked = self.0.read();
        let at = revoked.get(node);
        at.is_some_and(|at| client.validity.not_before <= *at)
    }

    /// The first second of a new certificate of a node; none if it was never revoked.
    pub fn floor(&self, identity: &Identity) -> Option<SystemTime> {
        let Identity::Node(node) = identity else {
            return None;
        };
        let at = self.0.read().get(node).copied();
        at.map(|at| at + Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validity::{LIFE, Validity};

    #[test]
    fn a_revoked_node_is_refused_until_it_has_joined_again() {
        let revocations = Revocations::default();
        let now = UNIX_EPOCH + Duration::from_hours(500_000) + Duration::from_millis(300);
        let issue = |node: &str, now| {
            let identity = Identity::node(node).unwrap();
            let validity = Validity::issued(now, LIFE, revocations.floor(&identity));
            Client { identity, validity }
        };
        let before = issue("a", now);
        assert!(!revocations.refuses(&before));
        revocations.revoke("a", now);
        revocations.revoke("a", now - LIFE);
        assert!(revocations.refuses(&before));
        assert!(!revocations.refuses(&issue("b", now)));
        let again = issue("a", now);
        assert!(!revocations.refuses(&again));
        assert!(again.validity.contains(now + Duration::from_secs(1)));
        let control = Client {
            identity: Identity::control("a").unwrap(),
            ..before
        };
        assert!(!revocations.refuses(&control));
    }
}
