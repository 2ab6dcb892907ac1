//! Objects with a time to live: many share a lease, and expire together.

use etcd_client::LeaseTimeToLiveOptions;

use super::{
    reflector::{Change, changes, watch},
    storage::Storage,
};
use crate::harness::Served;

const EVENTS: &str = "/registry/events/default/";

/// The smallest time to live, in seconds.
const TTL: i64 = 2;

/// Hands out leases as kube-apiserver does: one for a number of objects.
struct LeasePool {
    lease: i64,
    objects: usize,
    objects_max: usize,
}

impl LeasePool {
    async fn lease(&mut self, storage: &mut Storage, ttl: i64) -> i64 {
        if self.lease == 0 || self.objects == self.objects_max {
            let granted = storage.client.lease_grant(ttl, None).await.unwrap();
            (self.lease, self.objects) = (granted.id(), 0);
        }
        self.objects += 1;
        self.lease
    }
}

#[tokio::test]
async fn objects_share_leases_up_to_a_number() {
    let served = Served::start().await;
    let mut storage = Storage {
        client: served.client().await,
    };
    let mut pool = LeasePool {
        lease: 0,
        objects: 0,
        objects_max: 10,
    };
    let mut leases = Vec::new();
    for number in 0..25 {
        let lease = pool.lease(&mut storage, 600).await;
        let key = format!("{EVENTS}{number:02}");
        storage.put(&key, "event", 0, lease).await.revision();
        leases.push(lease);
    }
    leases.dedup();
    let mut attached = Vec::new();
    for lease in &leases {
        let options = LeaseTimeToLiveOptions::new().with_keys();
        let live = storage.client.lease_time_to_live(*lease, Some(options));
        attached.push(live.await.unwrap().keys().len());
    }
    assert_eq!(attached, [10, 10, 5]);
    // An update with another lease leaves the first one.
    let key = format!("{EVENTS}00");
    let revision = storage.get(&key).await.0.unwrap().revision;
    storage
        .put(&key, "event", revision, leases[2])
        .await
        .revision();
    storage.client.lease_revoke(leases[0]).await.unwrap();
    assert_eq!(storage.count(EVENTS).await, 16);
    served.stop().await;
}

#[tokio::test]
async fn the_objects_of_an_expired_lease_are_deleted_in_one_revision() {
    let served = Served::start().await;
    let mut storage = Storage {
        client: served.client().await,
    };
    let lease = storage.client.lease_grant(TTL, None).await.unwrap().id();
    let mut revision = 0;
    for name in ["b", "a", "c"] {
        let key = format!("{EVENTS}{name}");
        revision = storage.put(&key, name, 0, lease).await.revision();
    }
    storage
        .create(&format!("{EVENTS}lasting"), "")
        .await
        .revision();
    let mut stream = watch(&mut storage, EVENTS, revision + 1).await;
    let expired = changes(&mut stream, 3).await;
    let wanted =
        ["a", "b", "c"].map(|name| (format!("{EVENTS}{name}"), name.to_owned(), revision + 2));
    let deleted: Vec<_> = expired
        .into_iter()
        .map(|change| match change {
            Change::Deleted(object) => (object.key, object.value, object.revision),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(deleted, wanted);
    assert_eq!(storage.count(EVENTS).await, 1);
    let again = storage.put(&format!("{EVENTS}a"), "again", 0, 0).await;
    assert_eq!(again.revision(), revision + 3);
    served.stop().await;
}

#[tokio::test]
async fn an_object_that_is_updated_without_a_lease_does_not_expire() {
    let served = Served::start().await;
    let mut storage = Storage {
        client: served.client().await,
    };
    let lease = storage.client.lease_grant(TTL, None).await.unwrap().id();
    let (kept, gone) = (format!("{EVENTS}kept"), format!("{EVENTS}gone"));
    let first = storage.put(&kept, "1", 0, lease).await.revision();
    storage.put(&gone, "1", 0, lease).await.revision();
    let second = storage.put(&kept, "2", first, 0).await.revision();
    let mut stream = watch(&mut storage, EVENTS, second).await;
    let seen = changes(&mut stream, 1).await;
    let [Change::Deleted(expired)] = seen.as_slice() else {
        panic!("no deletion")
    };
    assert_eq!(expired.key, gone);
    assert_eq!(storage.get(&kept).await.0.unwrap().revision, second);
    served.stop().await;
}
