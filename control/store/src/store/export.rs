//! The export of the store as a snapshot of etcd: at the visible revision, in slices of the lock
//! beside the writers.

use std::io::Write;

use bytes::Bytes;
use dormouse_snapshot::{
    Auth, Checksummed, ExportError, Head, Lease, Named, Shape, Version, Writer, write,
};
use prost::Message;

use super::{Store, pins::Pin};
use crate::{auth, keyspace::RevisionOrder, lease::TTL_MIN_S, proto::etcdserverpb::AlarmMember};

impl Store {
    /// Writes a snapshot with its checksum to the output that is made for its size. Blocks, and
    /// reads all keys twice: the front of the file names its end.
    pub fn export<W: Write>(&self, out: impl FnOnce(Shape) -> W) -> Result<W, ExportError> {
        let (mut order, _pin) = self.pin_visible();
        while !order.slice(&self.shared.state.read().keyspace) {}
        let head = self.head(&order);
        let (_, shape) = write(Writer::measure(), &head, self.versions(&order))?;
        let out = Checksummed::new(out(shape));
        let (out, _) = write(Writer::new(out, shape)?, &head, self.versions(&order))?;
        Ok(out.finish()?)
    }

    fn pin_visible(&self) -> (RevisionOrder, Pin<'_>) {
        let _state = self.shared.state.read();
        let revision = self.shared.frontier.visible();
        (RevisionOrder::new(revision), self.shared.pins.pin(revision))
    }

    fn versions<'a>(&'a self, order: &'a RevisionOrder) -> impl Iterator<Item = Version> + 'a {
        let mut next = 0;
        let slices = std::iter::from_fn(move || {
            let slice = order.versions(&self.shared.state.read().keyspace, next);
            next += slice.len();
            (!slice.is_empty()).then_some(slice)
        });
        slices.flatten()
    }

    /// What has no revisions, as of now.
    fn head(&self, order: &RevisionOrder) -> Head {
        let alarms: Vec<_> = self.shared.state.read().alarms.of_kind(0).collect();
        let alarms = alarms.into_iter().map(|alarm| AlarmMember {
            member_id: alarm.member_id,
            alarm: alarm.kind,
        });
        let list = self.list_leases();
        let granted = list.granted().map(|(id, ttl_s)| Lease { id, ttl_s });
        // A lease that was revoked since the revision still has keys there; they go soon.
        let revoked = order.leases().filter(|id| *id != 0 && !list.contains(*id));
        let revoked = revoked.map(|id| Lease {
            id,
            ttl_s: TTL_MIN_S,
        });
        Head {
            revision: order.revision(),
            leases: granted.chain(revoked).collect(),
            alarms: alarms.map(|alarm| alarm.encode_to_vec().into()).collect(),
            auth: self.shared.auth.read(export_auth),
        }
    }
}

fn export_auth(state: &auth::State) -> Auth {
    let named = |name: &str, message: Vec<u8>| -> Named {
        (Bytes::copy_from_slice(name.as_bytes()), message.into())
    };
    let users = state.users().filter_map(|name| {
        let user = state.user(name).ok()?;
        Some(named(name, user.encode_to_vec()))
    });
    let roles = state.roles().filter_map(|name| {
        let role = state.role(name).ok()?;
        Some(named(name, role.encode_to_vec()))
    });
    Auth {
        enabled: state.enabled(),
        revision: state.revision(),
        users: users.collect(),
        roles: roles.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Cursor, time::Duration};

    use dormouse_snapshot::{Integrity, Snapshot, read};

    use super::*;
    use crate::proto::etcdserverpb::{DeleteRangeRequest, PutRequest};

    async fn put(store: &Store, key: &str, value: &[u8], lease: i64) {
        let request = PutRequest {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::copy_from_slice(value),
            lease,
            ..PutRequest::default()
        };
        store.put(&request).await.unwrap();
    }

    async fn delete_all(store: &Store) {
        let request = DeleteRangeRequest {
            key: Bytes::from_static(b"\0"),
            range_end: Bytes::from_static(b"\0"),
            ..DeleteRangeRequest::default()
        };
        store.delete_range(&request).await.unwrap();
    }

    /// The snapshot of a store to which something is done once its size is known.
    fn snapshot(store: &Store, meanwhile: impl FnOnce()) -> Snapshot {
        let file = store.export(|_| {
            meanwhile();
            Vec::new()
        });
        read(Cursor::new(file.unwrap()), Integrity::Checked).unwrap()
    }

    /// More events than stay readable for watchers, then a compaction that frees the others.
    async fn overwrite_and_compact(store: &Store) {
        for n in 0..10_000 {
            put(store, &format!("k/{}", n % 1_500), b"later", 0).await;
        }
        delete_all(store).await;
        store.compact(store.revision(), true).await.unwrap();
    }

    #[tokio::test]
    async fn a_snapshot_has_the_keys_of_its_revision_whatever_is_written_meanwhile() {
        let store = Store::new();
        for n in 0..2_000 {
            put(&store, &format!("k/{}", n % 1_500), &[7; 300], 0).await;
        }
        let before = store.revision();
        let saved = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Handle::current();
            snapshot(&store, || runtime.block_on(overwrite_and_compact(&store)))
        });
        let saved = saved.await.unwrap();
        assert_eq!((saved.head.revision, saved.pairs.len()), (before, 1_500));
        let twice = &saved.pairs[&b"k/3"[..]];
        let revisions = (twice.create_revision, twice.mod_revision, twice.version);
        assert_eq!(revisions, (5, 1_505, 2));
        assert_eq!(twice.value, [7; 300][..]);
    }

    #[tokio::test]
    async fn leases_are_in_a_snapshot_and_a_revoked_one_with_keys_expires_soon() {
        let store = Store::new();
        for id in [1, 2] {
            let mut state = store.shared.state.write();
            state.leases.grant(id, 600, Duration::ZERO).unwrap();
        }
        put(&store, "kept", b"", 1).await;
        put(&store, "gone", b"", 2).await;
        let (mut order, _pin) = store.pin_visible();
        assert!(order.slice(&store.shared.state.read().keyspace));
        store.shared.state.write().leases.revoke(2).unwrap();
        let leases = store.head(&order).leases;
        let expected = [(1, 600), (2, TTL_MIN_S)].map(|(id, ttl_s)| Lease { id, ttl_s });
        assert_eq!(leases, expected);
        assert_eq!(store.versions(&order).count(), 2);
    }
}
