//! The restore of a snapshot of etcd into a new data directory.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dormouse_snapshot::{Auth, Snapshot};
use dormouse_wal::{FileError, OpenError, PreviousRun, Recovery, files::Directory};
use prost::{DecodeError, Message};

use super::{Limits, Store, durability::config};
use crate::{
    Error,
    alarm::{Alarm, Alarms},
    auth::{self, Change},
    durable::{DataDir, Policy, Restored},
    keyspace::Revision,
    proto::{
        authpb::{Role, User},
        etcdserverpb::AlarmMember,
    },
    wire::Fields,
};

/// A snapshot that is not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The directory cannot be created, or is in use.
    #[error("failed to create the data directory")]
    Open(#[from] OpenError),
    /// The directory has the state of a store.
    #[error("the data directory `{0}` is not empty: name one that does not exist")]
    NotEmpty(String),
    /// The revision would be higher than the largest one.
    #[error("the revision {0} of the snapshot cannot be raised by {1}: raise it by less")]
    Revision(Revision, u32),
    /// A lease that etcd does not write.
    #[error("the lease {0} of the snapshot is refused: use another copy of the snapshot")]
    Lease(i64, #[source] Error),
    /// A user, a role or an alarm that etcd does not write.
    #[error(
        "a user, a role or an alarm of the snapshot is malformed: use another copy of the snapshot"
    )]
    Message(#[from] DecodeError),
    /// The state cannot be written.
    #[error("failed to write the restored state")]
    Write(#[from] FileError),
    /// The end of the run could not be recorded.
    #[error("failed to complete the data directory")]
    Close(#[from] Error),
}

impl Store {
    /// Creates a data directory with the state of a snapshot. Its revision is raised, and all
    /// history marked as compacted: what clients know from the cluster before has no meaning here.
    /// As in etcd, alarms stay raised, in the name of the member that raised them. Returns the
    /// revision. Blocks.
    pub fn restore(
        data: &DataDir,
        snapshot: &Snapshot,
        raised_by: u32,
    ) -> Result<Revision, RestoreError> {
        let head = &snapshot.head;
        let revision = head.revision.checked_add(i64::from(raised_by));
        let revision = revision.ok_or(RestoreError::Revision(head.revision, raised_by))?;
        let state = restored(snapshot, &data.policy, revision)?;
        let directory = Arc::new(Directory::open(&data.path)?);
        let limits = Limits::default();
        let recovery = Recovery::open(directory, config(&limits))?;
        let mut empty = recovery.snapshot_mark().is_none();
        let recovered = recovery.replay(&mut |_records| {
            empty = false;
            Ok(())
        })?;
        if !empty || recovered.previous_run() != PreviousRun::None {
            return Err(RestoreError::NotEmpty(data.path.display().to_string()));
        }
        let store = Self::start(limits, state, (recovered, data.policy.clone()))?;
        if let Some(journal) = &store.shared.journal {
            store.snapshot(journal)?;
        }
        store.close()?;
        Ok(revision)
    }
}

/// The state of a snapshot at a revision, from which on there is history.
fn restored(
    snapshot: &Snapshot,
    policy: &Policy,
    revision: Revision,
) -> Result<Restored, RestoreError> {
    let mut restored = Restored::new(Some(revision), u64::MAX);
    restored.auth = restored_auth(&snapshot.head.auth)?;
    restored.alarms = restored_alarms(&snapshot.head.alarms)?;
    for lease in &snapshot.head.leases {
        let granted = restored.leases.grant(lease.id, lease.ttl_s, Duration::ZERO);
        granted.map_err(|error| RestoreError::Lease(lease.id, error))?;
    }
    for pair in snapshot.pairs.values() {
        let fields = Fields {
            key: &pair.key,
            create_revision: pair.create_revision,
            mod_revision: pair.mod_revision,
            version: pair.version,
            value: &pair.value,
            lease: pair.lease,
        };
        restored.keyspace.key(&restored.keyspace.recorded(fields));
        if restored.leases.contains(pair.lease) {
            restored.leases.restore_key(&pair.key, pair.lease);
        }
        // The file has these keys, too, though their mode does not ask for it.
        if policy.of(&pair.key) == dormouse_wal::Durability::None {
            restored.mixed.insert(pair.mod_revision);
        }
    }
    Ok(restored)
}

fn restored_alarms(alarms: &[Bytes]) -> Result<Alarms, DecodeError> {
    let alarms: Result<Vec<_>, _> = alarms
        .iter()
        .map(|alarm| AlarmMember::decode(alarm.clone()))
        .collect();
    let alarms = alarms?.into_iter().map(|alarm| Alarm {
        kind: alarm.alarm,
        member_id: alarm.member_id,
    });
    Ok(Alarms::of(alarms))
}

fn restored_auth(auth: &Auth) -> Result<auth::State, DecodeError> {
    let mut changes = Vec::new();
    for (_, role) in &auth.roles {
        changes.push(Change::PutRole(Role::decode(role.clone())?));
    }
    for (_, user) in &auth.users {
        changes.push(Change::PutUser(User::decode(user.clone())?));
    }
    if auth.enabled {
        changes.push(Change::Enable);
    }
    // A store without users and roles has the revision 1; etcd may store 0.
    Ok(auth::State::restored(auth.revision.max(1), changes))
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use dormouse_snapshot::{Integrity, read};

    use super::*;
    use crate::proto::etcdserverpb::{RangeRequest, RangeResponse};

    /// What etcd 3.4.23 saved after 159 revisions.
    fn snapshot() -> Snapshot {
        let mut bytes = Vec::new();
        let compressed = include_bytes!("../../bbolt/tests/data/etcd-3.4.db.gz");
        let mut file = flate2::read::GzDecoder::new(&compressed[..]);
        file.read_to_end(&mut bytes).unwrap();
        read(Cursor::new(bytes), Integrity::Checked).unwrap()
    }

    async fn get(store: &Store, revision: Revision) -> Result<RangeResponse, Error> {
        let request = RangeRequest {
            key: Bytes::from_static(b"a"),
            revision,
            ..RangeRequest::default()
        };
        store.range(&request).await
    }

    #[tokio::test]
    async fn the_state_of_a_snapshot_is_there_after_a_restore_at_a_higher_revision() {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir {
            path: directory.path().join("data"),
            policy: Policy {
                prefixes: vec![(Bytes::from_static(b"k/"), dormouse_wal::Durability::None)],
                ..Policy::default()
            },
        };
        let mut snapshot = snapshot();
        let alarm = Alarm {
            kind: 1,
            member_id: 9,
        };
        let message = AlarmMember {
            alarm: alarm.kind,
            member_id: alarm.member_id,
        };
        snapshot.head.alarms = vec![message.encode_to_vec().into()];
        assert_eq!(Store::restore(&data, &snapshot, 1_000).unwrap(), 1_159);
        let again = Store::restore(&data, &snapshot, 1_000).unwrap_err();
        assert!(matches!(again, RestoreError::NotEmpty(_)), "{again}");
        let store = Store::open(Limits::default(), &data).unwrap();
        assert!(store.revision() > 1_159);
        let found = get(&store, 0).await.unwrap();
        let fields = found.kvs[0].fields();
        assert_eq!((fields.value, fields.version), (&b"3"[..], 2));
        assert_eq!(get(&store, 159).await.unwrap_err(), Error::Compacted);
        // Also those in mode `none`.
        assert_eq!(
            store.shared.state.read().keyspace.keys_live(),
            snapshot.pairs.len() as u64
        );
        assert_eq!(store.alarms(0).0, [alarm]);
        let granted: Vec<_> = store.list_leases().granted().collect();
        assert_eq!(granted, [(snapshot.head.leases[0].id, 600)]);
        store.auth().read(|state| {
            assert_eq!(state.user("u").unwrap().roles, ["r"]);
            assert_eq!(state.revision(), snapshot.head.auth.revision);
        });
    }
}
