//! The buckets of etcd's database and the form of their keys (`server/storage/schema`).

/// Encoded `AlarmMember`s as keys, without values.
pub(crate) const ALARM: &[u8] = b"alarm";
/// [`AUTH_ENABLED`] and [`AUTH_REVISION`].
pub(crate) const AUTH: &[u8] = b"auth";
/// `authpb.Role` by name.
pub(crate) const AUTH_ROLES: &[u8] = b"authRoles";
/// `authpb.User` by name.
pub(crate) const AUTH_USERS: &[u8] = b"authUsers";
/// The version of the cluster; set by the restored cluster.
pub(crate) const CLUSTER: &[u8] = b"cluster";
/// `mvccpb.KeyValue` by [`RevisionKey`].
pub(crate) const KEY: &[u8] = b"key";
/// `leasepb.Lease` by ID, 8 bytes, big-endian.
pub(crate) const LEASE: &[u8] = b"lease";
/// Members; set by the restored cluster.
pub(crate) const MEMBERS: &[u8] = b"members";
/// Removed members; set by the restored cluster.
pub(crate) const MEMBERS_REMOVED: &[u8] = b"members_removed";
/// The compacted revision, and the position in the Raft log.
pub(crate) const META: &[u8] = b"meta";

/// One byte: 1 if requests need a user.
pub(crate) const AUTH_ENABLED: &[u8] = b"authEnabled";
/// 8 bytes, big-endian.
pub(crate) const AUTH_REVISION: &[u8] = b"authRevision";
/// A [`RevisionKey`].
pub(crate) const COMPACT_FINISHED: &[u8] = b"finishedCompactRev";
/// A [`RevisionKey`]; above the finished one, a compaction is resumed.
pub(crate) const COMPACT_SCHEDULED: &[u8] = b"scheduledCompactRev";
/// Members as JSON, from etcd 3.5 on.
pub(crate) const CONF_STATE: &[u8] = b"confState";
/// Index of the last applied entry of the Raft log, 8 bytes, big-endian.
pub(crate) const CONSISTENT_INDEX: &[u8] = b"consistent_index";
/// The schema's version, from etcd 3.6 on; older versions ignore it.
pub(crate) const STORAGE_VERSION: &[u8] = b"storageVersion";
/// Raft term of that entry, 8 bytes, big-endian.
pub(crate) const TERM: &[u8] = b"term";

/// Bytes of a revision as a key: main revision (8), `_`, number inside the transaction (8).
const REVISION_BYTES: usize = 17;
const SEPARATOR: u8 = b'_';
/// Behind the revision of a deletion.
const TOMBSTONE: &[u8] = b"t";

/// The key of a version: big-endian, so that versions are in the order of their revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RevisionKey {
    /// The revision.
    pub(crate) main: i64,
    /// Position inside the revision's transaction.
    pub(crate) sub: i64,
    /// Whether the version is a deletion.
    pub(crate) tombstone: bool,
}

impl RevisionKey {
    /// The key of the first write of a revision.
    pub(crate) fn of(main: i64) -> Self {
        Self {
            main,
            sub: 0,
            tombstone: false,
        }
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut key = Vec::with_capacity(REVISION_BYTES + TOMBSTONE.len());
        key.extend(self.main.to_be_bytes());
        key.push(SEPARATOR);
        key.extend(self.sub.to_be_bytes());
        key.extend(if self.tombstone { TOMBSTONE } else { &[] });
        key
    }

    pub(crate) fn decode(key: &[u8]) -> Option<Self> {
        let (revision, mark) = key.split_at_checked(REVISION_BYTES)?;
        let (main, rest) = revision.split_first_chunk()?;
        let (separator, sub) = rest.split_first()?;
        let known = *separator == SEPARATOR && (mark.is_empty() || mark == TOMBSTONE);
        known.then_some(Self {
            main: i64::from_be_bytes(*main),
            sub: i64::from_be_bytes(*sub.first_chunk()?),
            tombstone: mark == TOMBSTONE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_key_is_read_as_it_was_written_and_no_other_is() {
        for tombstone in [false, true] {
            let key = RevisionKey {
                main: 0x0102,
                sub: 3,
                tombstone,
            };
            let bytes = key.encode();
            assert_eq!(bytes[..11], [0, 0, 0, 0, 0, 0, 1, 2, b'_', 0, 0]);
            assert_eq!(RevisionKey::decode(&bytes), Some(key));
            assert_eq!(RevisionKey::decode(&bytes[..16]), None);
            assert_eq!(RevisionKey::decode(&[&bytes[..], b"x"].concat()), None);
        }
        assert_eq!(RevisionKey::decode(b"12345678-12345678"), None);
    }
}
