//! The import: the state of a snapshot at its last revision.

use std::io::{Read, Seek};

use bytes::Bytes;
use dormouse_bbolt::{Database, Entry};
use prost::Message;

use crate::{
    Auth, Head, ImportError, KeyValue, Lease, Named, Pairs, Snapshot, checksum,
    schema::{self, RevisionKey},
};

/// Whether the SHA-256 at the end of the file is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// It is checked: the file was saved by `etcdctl snapshot save`.
    Checked,
    /// It is not: the file may have none.
    Skipped,
}

/// Reads a snapshot. Holds one version of each key in memory, and one page of the file.
pub fn read<R: Read + Seek>(mut file: R, integrity: Integrity) -> Result<Snapshot, ImportError> {
    if integrity == Integrity::Checked {
        checksum::verify(&mut file)?;
    }
    let mut database = Database::open(file)?;
    let compacted = compacted(&mut database)?;
    let (written, pairs) = pairs(&mut database)?;
    let head = Head {
        // A compaction at the last deletion leaves nothing of the current revision.
        revision: written.max(compacted),
        leases: leases(&mut database)?,
        alarms: names(&mut database, schema::ALARM)?,
        auth: auth(&mut database)?,
    };
    Ok(Snapshot { head, pairs })
}

/// The last revision that was written (1 if none was), and the keys that exist after it.
fn pairs<R: Read + Seek>(database: &mut Database<R>) -> Result<(i64, Pairs), ImportError> {
    let (mut last, mut pairs) = (1, Pairs::new());
    let entries = database.bucket(schema::KEY)?;
    for entry in entries.ok_or(ImportError::NoBucket("key"))? {
        let Entry { key, value, .. } = entry?;
        let damaged = |problem| ImportError::Record {
            bucket: "key",
            problem,
        };
        let revision = RevisionKey::decode(&key).ok_or(damaged("a key that is no revision"))?;
        let pair = KeyValue::decode(Bytes::from(value));
        let pair = pair.map_err(|_malformed| damaged("a value that is no key-value pair"))?;
        last = revision.main.max(last);
        if revision.tombstone {
            pairs.remove(&pair.key);
        } else {
            pairs.insert(pair.key.clone(), pair);
        }
    }
    Ok((last, pairs))
}

/// The compacted revision; 0 before the first compaction.
fn compacted<R: Read + Seek>(database: &mut Database<R>) -> Result<i64, ImportError> {
    let keys = [schema::COMPACT_SCHEDULED, schema::COMPACT_FINISHED];
    let meta = optional(database, schema::META)?.into_iter();
    let revisions = meta.filter(|entry| keys.contains(&entry.key.as_slice()));
    let revisions = revisions.filter_map(|entry| RevisionKey::decode(&entry.value));
    Ok(revisions.map(|revision| revision.main).max().unwrap_or(0))
}

fn leases<R: Read + Seek>(database: &mut Database<R>) -> Result<Vec<Lease>, ImportError> {
    let entries = optional(database, schema::LEASE)?.into_iter();
    let leases = entries.map(|entry| Lease::decode(Bytes::from(entry.value)));
    leases
        .collect::<Result<_, _>>()
        .map_err(|_malformed| ImportError::Record {
            bucket: "lease",
            problem: "a value that is no lease",
        })
}

fn auth<R: Read + Seek>(database: &mut Database<R>) -> Result<Auth, ImportError> {
    let mut auth = Auth {
        users: named(database, schema::AUTH_USERS)?,
        roles: named(database, schema::AUTH_ROLES)?,
        ..Auth::default()
    };
    for Entry { key, value, .. } in optional(database, schema::AUTH)? {
        match key.as_slice() {
            schema::AUTH_ENABLED => auth.enabled = value == [1],
            schema::AUTH_REVISION => {
                let revision = value.first_chunk().copied();
                auth.revision = revision.map_or(0, u64::from_be_bytes);
            }
            _ => {}
        }
    }
    Ok(auth)
}

fn named<R: Read + Seek>(
    database: &mut Database<R>,
    bucket: &[u8],
) -> Result<Vec<Named>, ImportError> {
    let entries = optional(database, bucket)?.into_iter();
    Ok(entries
        .map(|entry| (entry.key.into(), entry.value.into()))
        .collect())
}

fn names<R: Read + Seek>(
    database: &mut Database<R>,
    bucket: &[u8],
) -> Result<Vec<Bytes>, ImportError> {
    let entries = optional(database, bucket)?.into_iter();
    Ok(entries.map(|entry| entry.key.into()).collect())
}

/// All entries of a small bucket, which older versions of etcd may not have.
fn optional<R: Read + Seek>(
    database: &mut Database<R>,
    bucket: &[u8],
) -> Result<Vec<Entry>, ImportError> {
    match database.bucket(bucket)? {
        Some(entries) => Ok(entries.collect::<Result<_, _>>()?),
        None => Ok(Vec::new()),
    }
}
