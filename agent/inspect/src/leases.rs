//! The node's address leases, read from the journal. The reader takes no lock, so an agent can append meanwhile; a record
//! that is not complete yet is ignored.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dormouse_agent_ipam::allocator::QUARANTINE_DEFAULT;
use dormouse_agent_ipam::journal;
use dormouse_agent_ipam::record::Record;
use dormouse_agent_ipam::{BootId, Lease, NodePrefix, State, Suffix};

use super::{Exit, InspectError};

/// The state that the journal's records amount to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leases {
    /// The node's prefix.
    pub prefix: NodePrefix,
    /// The boot in which the journal was created; leases of an earlier boot are invalid.
    pub boot: BootId,
    /// Leases by suffix.
    pub held: BTreeMap<Suffix, Arc<Lease>>,
    /// End of the quarantine of each released address, as time since boot.
    pub quarantined: BTreeMap<Suffix, Duration>,
}

impl Leases {
    /// Reads the journal in a state folder; none if there is no journal.
    pub fn read(state_dir: &Path) -> Result<Option<Self>, InspectError> {
        let path = state_dir.join(journal::FILE);
        match fs::read(&path) {
            Ok(bytes) => match journal::scan(&bytes) {
                Ok((records, _)) => Ok(Self::replay(records)),
                Err(error) => Err(InspectError::new(
                    Exit::Unreachable,
                    format!("cannot read {}: {error}", path.display()),
                    "use the version of dormouse-agent that runs on this node",
                )),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let message = format!("cannot read {}: {error}", path.display());
                Err(if error.kind() == io::ErrorKind::PermissionDenied {
                    InspectError::not_allowed(message)
                } else {
                    let hint = "give the node's folder with --state-dir";
                    InspectError::new(Exit::Unreachable, message, hint)
                })
            }
        }
    }

    /// Applies the records in order.
    fn replay(records: Vec<Record>) -> Option<Self> {
        let mut records = records.into_iter();
        let Some(Record::Header { boot, prefix }) = records.next() else {
            return None;
        };
        let (held, quarantined) = (BTreeMap::new(), BTreeMap::new());
        let mut leases = Self {
            prefix,
            boot,
            held,
            quarantined,
        };
        for record in records {
            leases.apply(record);
        }
        Some(leases)
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Reserve(lease) => {
                self.quarantined.remove(&lease.suffix);
                self.held.insert(lease.suffix, lease);
            }
            Record::Live(suffix) => self.step(suffix, State::Live),
            Record::Release(suffix) => self.step(suffix, State::Releasing),
            Record::Free(suffix, at) => {
                self.held.remove(&suffix);
                self.quarantined.insert(suffix, at + QUARANTINE_DEFAULT);
            }
            Record::Header { .. }
            | Record::Cursor(_)
            | Record::QuarantineIpv4(..)
            | Record::CursorIpv4(_) => {}
        }
    }

    fn step(&mut self, suffix: Suffix, state: State) {
        if let Some(lease) = self.held.get_mut(&suffix) {
            Arc::make_mut(lease).state = state;
        }
    }

    /// The address with this suffix.
    pub fn address(&self, suffix: Suffix) -> Ipv6Addr {
        self.prefix.address(suffix)
    }

    /// Remaining quarantine of an address at `now` (time since boot); none if it is leased or free.
    pub fn quarantine(&self, suffix: Suffix, now: Duration) -> Option<Duration> {
        let left = self.quarantined.get(&suffix)?.checked_sub(now)?;
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use dormouse_agent_ipam::{LeaseKey, NetnsId};

    use super::*;

    fn lease(suffix: u32) -> Arc<Lease> {
        Arc::new(Lease {
            key: LeaseKey {
                network: "pods".into(),
                container: "c1".into(),
                ifname: "eth0".into(),
            },
            suffix: Suffix(suffix),
            state: State::Reserved,
            netns: NetnsId::default(),
            since: Duration::from_secs(3),
            ipv4: None,
            wired: true,
        })
    }

    #[test]
    fn the_journal_is_replayed_record_by_record() {
        let prefix: NodePrefix = "2001:db8:d0:0:0:1::/96".parse().unwrap();
        let at = Duration::from_secs(9);
        let records = vec![
            Record::Header {
                boot: BootId::default(),
                prefix,
            },
            Record::Reserve(lease(0x1_0000)),
            Record::Reserve(lease(0x1_0001)),
            Record::Live(Suffix(0x1_0000)),
            Record::Release(Suffix(0x1_0001)),
            Record::Free(Suffix(0x1_0001), at),
        ];
        let leases = Leases::replay(records).unwrap();
        assert_eq!(leases.held.len(), 1);
        assert_eq!(leases.held[&Suffix(0x1_0000)].state, State::Live);
        assert_eq!(
            leases.quarantine(Suffix(0x1_0001), at),
            Some(QUARANTINE_DEFAULT)
        );
        assert_eq!(
            leases.quarantine(Suffix(0x1_0001), at + QUARANTINE_DEFAULT),
            None
        );
        assert_eq!(leases.quarantine(Suffix(0x1_0000), at), None);
        assert_eq!(Leases::replay(Vec::new()), None);
    }

    #[test]
    fn a_node_without_a_journal_has_no_leases() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Leases::read(folder.path()).unwrap(), None);
    }
}
