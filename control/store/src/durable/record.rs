//! The records of the journal and of snapshots, as the store writes and reads them.
//!
//! Numbers are varints, lists of bytes have their length in front. The fields of a version are those
//! of `mvccpb.KeyValue` without the key, as they are held in memory: writing and reading them copies.

use bytes::{BufMut, Bytes};
use prost::{
    Message,
    encoding::{decode_varint, encode_varint},
};

use crate::{
    alarm::Alarm,
    auth::{self, Change},
    keyspace::{KeyRange, KeyspaceHash, Revision},
    lease::LeaseId,
    proto::{
        authpb::{Role, User},
        etcdserverpb::Member,
    },
    wire::Fields,
};

/// The kinds of records. A number is never given to another kind.
pub(crate) mod kind {
    /// The events of one revision, and the lease whose revocation made them.
    pub(crate) const WRITE: u8 = 1;
    /// A lease grant.
    pub(crate) const GRANT: u8 = 2;
    /// A compaction.
    pub(crate) const COMPACT: u8 = 3;
    /// All active alarms.
    pub(crate) const ALARMS: u8 = 4;
    /// All users and roles.
    pub(crate) const AUTH: u8 = 5;
    /// The first revision and the policy of a run.
    pub(crate) const RUN: u8 = 6;
    /// Prefixes that lost writes.
    pub(crate) const LOST: u8 = 7;
    /// The members that clients changed.
    pub(crate) const MEMBERS: u8 = 8;
    /// Hashes of the compactions before a snapshot.
    pub(crate) const HASHES: u8 = 9;
    /// The deletion of all keys of a range.
    pub(crate) const DELETE: u8 = 10;
    /// Keys of a snapshot.
    pub(crate) const PAIRS: u8 = 16;
}

/// A record whose bytes are not what its kind demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    #[error("a record of kind {0} is malformed")]
    Malformed(u8),
    #[error("a record has the unknown kind {0}")]
    Unknown(u8),
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record<'a> {
    Write(Write<'a>),
    Grant {
        id: LeaseId,
        ttl_s: i64,
    },
    Compact(Revision),
    Alarms(Vec<Alarm>),
    Auth {
        revision: u64,
        changes: Vec<Change>,
    },
    Run {
        revision: Revision,
        policy: &'a str,
    },
    Lost {
        floor: Revision,
        prefixes: Vec<Bytes>,
    },
    Delete {
        revision: Revision,
        range: KeyRange,
    },
    Members(Vec<Member>),
    Hashes(Vec<KeyspaceHash>),
    Pairs(Pairs<'a>),
}

/// The record of a write.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write<'a> {
    /// The revision; that before, if the write made none.
    pub(super) revision: Revision,
    /// The revoked lease; 0 is none.
    pub(super) revoked: LeaseId,
    pub(super) events: Pairs<'a>,
}

/// Keys with their encoded fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pairs<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<Fields<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let malformed = RecordError::Malformed(self.kind);
        let mut reader = Reader(std::mem::take(&mut self.rest));
        let (Some(key), Some(encoded)) = (reader.bytes(), reader.bytes()) else {
            return Some(Err(malformed));
        };
        self.rest = reader.0;
        let fields = Fields {
            key,
            ..Fields::decode(encoded)
        };
        Some(if fields.mod_revision > 0 {
            Ok(fields)
        } else {
            Err(malformed)
        })
    }
}

/// A reader of numbers and bytes; `None` where they end too early.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        decode_varint(&mut self.0).ok()
    }

    fn signed(&mut self) -> Option<i64> {
        self.number().map(u64::cast_signed)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn all<T>(&mut self, mut next: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        while !self.0.is_empty() {
            items.push(next(self)?);
        }
        Some(items)
    }
}

/// Decodes a record.
pub(super) fn decode(kind: u8, payload: &[u8]) -> Result<Record<'_>, RecordError> {
    let mut reader = Reader(payload);
    let record = match kind {
        kind::WRITE => write(&mut reader),
        kind::GRANT => grant(&mut reader),
        kind::COMPACT => reader.signed().map(Record::Compact),
        kind::ALARMS => reader.all(alarm).map(Record::Alarms),
        kind::AUTH => auth(&mut reader),
        kind::RUN => run(&mut reader),
        kind::LOST => lost(&mut reader),
        kind::DELETE => delete(&mut reader),
        kind::MEMBERS => reader.all(member).map(Record::Members),
        kind::HASHES => reader.all(hash).map(Record::Hashes),
        kind::PAIRS => Some(Record::Pairs(Pairs {
            kind,
            rest: payload,
        })),
        _ => return Err(RecordError::Unknown(kind)),
    };
    record.ok_or(RecordError::Malformed(kind))
}

fn run<'a>(reader: &mut Reader<'a>) -> Option<Record<'a>> {
    let revision = reader.signed()?;
    let policy = std::str::from_utf8(reader.0).ok()?;
    Some(Record::Run { revision, policy })
}

/// Appends the payload of a record of a run.
pub(crate) fn put_run(out: &mut Vec<u8>, revision: Revision, policy: &str) {
    put_number(out, revision);
    out.put_slice(policy.as_bytes());
}

fn write<'a>(reader: &mut Reader<'a>) -> Option<Record<'a>> {
    Some(Record::Write(Write {
        revision: reader.signed()?,
        revoked: reader.signed()?,
        events: Pairs {
            kind: kind::WRITE,
            rest: reader.0,
        },
    }))
}

fn delete<'a>(reader: &mut Reader<'a>) -> Option<Record<'a>> {
    let revision = reader.signed().filter(|revision| *revision > 0)?;
    let [key, range_end] = [reader.bytes()?, reader.bytes()?].map(Bytes::copy_from_slice);
    let range = KeyRange::new(&key, &range_end);
    Some(Record::Delete { revision, range })
}

fn grant<'a>(reader: &mut Reader<'a>) -> Option<Record<'a>> {
    let (id, ttl_s) = (reader.signed()?, reader.signed()?);
    Some(Record::Grant { id, ttl_s })
}

fn alarm(reader: &mut Reader<'_>) -> Option<Alarm> {
    Some(Alarm {
        kind: i32::try_from(reader.signed()?).ok()?,
        member_id: reader.number()?,
    })
}

fn member(reader: &mut Reader<'_>) -> Option<Member> {
    Member::decode(reader.bytes()?).ok()
}

fn hash(reader: &mut Reader<'_>) -> Option<KeyspaceHash> {
    Some(KeyspaceHash {
        hash: u32::try_from(reader.number()?).ok()?,
        compacted: reader.signed()?,
        revision: reader.signed()?,
    })
}

/// Tags of the parts of a record of users and roles.
const ENABLED: i64 = 1;
const ROLE: i64 = 2;
const USER: i64 = 3;

fn auth<'a>(reader: &mut Reader<'a>) -> Option<Record<'a>> {
    let revision = reader.number()?;
    let changes = reader.all(|reader| match reader.signed()? {
        ENABLED => Some(Change::Enable),
        ROLE => Some(Change::PutRole(Role::decode(reader.bytes()?).ok()?)),
        USER => Some(Change::PutUser(User::decode(reader.bytes()?).ok()?)),
        _ => None,
    })?;
    Some(Record::Auth { revision, changes })
}

/// Appends the payload of a record of users and roles.
pub(crate) fn put_auth(out: &mut Vec<u8>, state: &auth::State) {
    encode_varint(state.revision(), out);
    for change in state.changes() {
        match change {
            Change::Enable => put_number(out, ENABLED),
            Change::PutRole(role) => {
                put_number(out, ROLE);
                put_bytes(out, &role.encode_to_vec());
            }
            Change::PutUser(user) => {
                put_number(out, USER);
                put_bytes(out, &user.encode_to_vec());
            }
            // A state is made of the other changes.
            Change::Disable | Change::DeleteUser(_) | Change::DeleteRole(_) => {}
        }
    }
}

fn lost<'a>(reader: &mut Reader<'a>) -> Option<Record<'a>> {
    let floor = reader.signed()?;
    let prefixes = reader.all(|reader| reader.bytes().map(Bytes::copy_from_slice))?;
    Some(Record::Lost { floor, prefixes })
}

/// Appends a number.
pub(crate) fn put_number(out: &mut Vec<u8>, number: i64) {
    encode_varint(number.cast_unsigned(), out);
}

/// Appends bytes with their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    encode_varint(bytes.len() as u64, out);
    out.put_slice(bytes);
}

/// Appends a key with its encoded fields.
pub(crate) fn put_pair(out: &mut Vec<u8>, key: &[u8], encoded: &[u8]) {
    put_bytes(out, key);
    put_bytes(out, encoded);
}

/// Appends the payload of a record of alarms.
pub(crate) fn put_alarms(out: &mut Vec<u8>, alarms: impl IntoIterator<Item = Alarm>) {
    for alarm in alarms {
        put_number(out, i64::from(alarm.kind));
        encode_varint(alarm.member_id, out);
    }
}

/// Appends the payload of a record of members.
pub(crate) fn put_members(out: &mut Vec<u8>, members: &[Member]) {
    for member in members {
        put_bytes(out, &member.encode_to_vec());
    }
}

/// Appends the payload of a record of hashes.
pub(crate) fn put_hashes(out: &mut Vec<u8>, hashes: &[KeyspaceHash]) {
    for hash in hashes {
        encode_varint(hash.hash.into(), out);
        put_number(out, hash.compacted);
        put_number(out, hash.revision);
    }
}

/// Appends the payload of a record of prefixes that lost writes.
pub(crate) fn put_lost<'a>(
    out: &mut Vec<u8>,
    floor: Revision,
    prefixes: impl IntoIterator<Item = &'a Bytes>,
) {
    put_number(out, floor);
    for prefix in prefixes {
        put_bytes(out, prefix);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_a_panic(kind: u8, payload: Vec<u8>) {
            match decode(kind, &payload) {
                Ok(Record::Write(write)) => { let _ = write.events.count(); }
                Ok(Record::Pairs(pairs)) => { let _ = pairs.count(); }
                _ => {}
            }
        }

        #[test]
        fn a_write_is_decoded_as_encoded(
            revision in 1i64.., revoked: i64,
            pairs in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..20), 1i64..), 0..5),
        ) {
            let mut payload = Vec::new();
            put_number(&mut payload, revision);
            put_number(&mut payload, revoked);
            for (key, mod_revision) in &pairs {
                let mut encoded = Vec::new();
                Fields { mod_revision: *mod_revision, ..Fields::default() }.encode_head(&mut encoded);
                put_pair(&mut payload, key, &encoded);
            }
            let Record::Write(write) = decode(kind::WRITE, &payload).unwrap() else {
                panic!("not a write");
            };
            prop_assert_eq!((write.revision, write.revoked), (revision, revoked));
            let read: Vec<_> = write.events.map(|fields| {
                let fields = fields.unwrap();
                (fields.key.to_vec(), fields.mod_revision)
            }).collect();
            prop_assert_eq!(read, pairs);
        }
    }

    #[test]
    fn a_deletion_is_decoded_as_encoded() {
        let mut payload = Vec::new();
        put_number(&mut payload, 7);
        put_bytes(&mut payload, b"a");
        put_bytes(&mut payload, b"b");
        let expected = Record::Delete {
            revision: 7,
            range: KeyRange::Span(Bytes::from_static(b"a"), Bytes::from_static(b"b")),
        };
        assert_eq!(decode(kind::DELETE, &payload), Ok(expected));
        for length in 0..payload.len() {
            let malformed = decode(kind::DELETE, &payload[..length]);
            assert_eq!(malformed, Err(RecordError::Malformed(kind::DELETE)));
        }
    }

    #[test]
    fn members_and_hashes_are_decoded_as_encoded() {
        let members = vec![Member {
            id: 7,
            peer_ur_ls: vec!["http://learner:1".into()],
            is_learner: true,
            ..Member::default()
        }];
        let mut payload = Vec::new();
        put_members(&mut payload, &members);
        let record = decode(kind::MEMBERS, &payload);
        assert_eq!(record, Ok(Record::Members(members)));
        let hashes = [-1, 4].map(|compacted| KeyspaceHash {
            hash: u32::MAX,
            compacted,
            revision: 9,
        });
        let mut payload = Vec::new();
        put_hashes(&mut payload, &hashes);
        let record = decode(kind::HASHES, &payload);
        assert_eq!(record, Ok(Record::Hashes(hashes.to_vec())));
    }

    #[test]
    fn alarms_and_losses_are_decoded_as_encoded() {
        let alarms = vec![
            Alarm {
                kind: 1,
                member_id: u64::MAX,
            },
            Alarm {
                kind: 2,
                member_id: 0,
            },
        ];
        let mut payload = Vec::new();
        put_alarms(&mut payload, alarms.clone());
        assert_eq!(decode(kind::ALARMS, &payload), Ok(Record::Alarms(alarms)));
        let prefixes = vec![Bytes::new(), Bytes::from_static(b"/a/")];
        let mut payload = Vec::new();
        put_lost(&mut payload, 7, &prefixes);
        let record = Record::Lost { floor: 7, prefixes };
        assert_eq!(decode(kind::LOST, &payload), Ok(record));
    }

    #[test]
    fn a_short_record_and_an_unknown_kind_are_errors() {
        assert_eq!(decode(kind::GRANT, &[1]), Err(RecordError::Malformed(2)));
        assert_eq!(decode(99, &[]), Err(RecordError::Unknown(99)));
    }
}
