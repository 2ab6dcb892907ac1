//! The export: a database with the state at one revision, which etcd and its tools restore.

use std::io::Write;

use bytes::Bytes;
use dormouse_bbolt::{BucketWriter, Shape, Writer};
use prost::Message;

use crate::{
    ExportError, Head, Named,
    schema::{self, RevisionKey},
};

/// The version of the schema. From 3.6 on, etcd upgrades older ones and refuses newer ones; before,
/// it ignores the version.
const STORAGE_VERSION: &[u8] = b"3.6.0";

/// The Raft term and the members that the restore replaces; a schema from 3.5 on must have them.
const TERM: u64 = 1;
const CONF_STATE: &[u8] = br#"{"voters":[1],"auto_leave":false}"#;

/// A key at the revision of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its mod revision.
    pub revision: i64,
    /// The encoded `mvccpb.KeyValue`.
    pub encoded: Bytes,
}

/// Writes a snapshot without its checksum. The versions come in the order of their revisions; those
/// of one revision in any, the same one each time.
pub fn write<W: Write>(
    writer: Writer<W>,
    head: &Head,
    versions: impl Iterator<Item = Version>,
) -> Result<(W, Shape), ExportError> {
    let alarms = sorted(
        head.alarms
            .iter()
            .map(|alarm| (alarm.clone(), Bytes::new())),
    );
    let mut writer = bucket(writer, schema::ALARM, alarms)?;
    writer = bucket(writer, schema::AUTH, auth(head))?;
    writer = bucket(
        writer,
        schema::AUTH_ROLES,
        sorted(head.auth.roles.iter().cloned()),
    )?;
    writer = bucket(
        writer,
        schema::AUTH_USERS,
        sorted(head.auth.users.iter().cloned()),
    )?;
    writer = bucket(writer, schema::CLUSTER, Vec::new())?;
    writer = keys(writer.bucket(schema::KEY), versions)?;
    writer = bucket(writer, schema::LEASE, leases(head))?;
    writer = bucket(writer, schema::MEMBERS, Vec::new())?;
    writer = bucket(writer, schema::MEMBERS_REMOVED, Vec::new())?;
    writer = bucket(writer, schema::META, meta(head))?;
    Ok(writer.finish()?)
}

fn bucket<W: Write>(
    writer: Writer<W>,
    name: &[u8],
    entries: Vec<Named>,
) -> Result<Writer<W>, ExportError> {
    let mut bucket = writer.bucket(name);
    for (key, value) in entries {
        bucket.entry(&key, &value)?;
    }
    Ok(bucket.finish()?)
}

fn keys<W: Write>(
    mut bucket: BucketWriter<W>,
    versions: impl Iterator<Item = Version>,
) -> Result<Writer<W>, ExportError> {
    let mut next = RevisionKey::of(0);
    for version in versions {
        if next.main != version.revision {
            next = RevisionKey::of(version.revision);
        }
        bucket.entry(&next.encode(), &version.encoded)?;
        next.sub += 1;
    }
    Ok(bucket.finish()?)
}

fn auth(head: &Head) -> Vec<Named> {
    let entry =
        |key: &'static [u8], value: &[u8]| (Bytes::from(key), Bytes::copy_from_slice(value));
    vec![
        entry(schema::AUTH_ENABLED, &[u8::from(head.auth.enabled)]),
        entry(schema::AUTH_REVISION, &head.auth.revision.to_be_bytes()),
    ]
}

/// The revision as compacted, and a position in the Raft log that the restore replaces.
fn meta(head: &Head) -> Vec<Named> {
    let compacted = RevisionKey::of(head.revision).encode();
    let entry =
        |key: &'static [u8], value: &[u8]| (Bytes::from(key), Bytes::copy_from_slice(value));
    sorted(
        [
            entry(schema::CONF_STATE, CONF_STATE),
            entry(schema::CONSISTENT_INDEX, &head.revision.to_be_bytes()),
            entry(schema::COMPACT_FINISHED, &compacted),
            entry(schema::COMPACT_SCHEDULED, &compacted),
            entry(schema::STORAGE_VERSION, STORAGE_VERSION),
            entry(schema::TERM, &TERM.to_be_bytes()),
        ]
        .into_iter(),
    )
}

fn leases(head: &Head) -> Vec<Named> {
    let leases = head.leases.iter();
    sorted(leases.map(|lease| {
        let id = Bytes::copy_from_slice(&lease.id.to_be_bytes());
        (id, lease.encode_to_vec().into())
    }))
}

fn sorted(entries: impl Iterator<Item = Named>) -> Vec<Named> {
    let mut entries: Vec<Named> = entries.collect();
    entries.sort();
    entries
}
