//! Leases: chosen ids, time to live, keys, and streams that keep them alive.

use etcd_client::{Error, LeaseGrantOptions, LeaseTimeToLiveOptions, PutOptions};

use crate::{
    harness::{Served, within},
    services::refusal,
};

fn chosen(id: i64) -> LeaseGrantOptions {
    LeaseGrantOptions::new().with_id(id)
}

#[tokio::test]
async fn a_lease_has_the_id_and_the_time_that_were_asked_for() {
    let served = Served::start().await;
    let mut client = served.client().await;
    for id in [100, 101, 102] {
        let granted = client.lease_grant(60, Some(chosen(id))).await.unwrap();
        assert_eq!((granted.id(), granted.ttl()), (id, 60));
    }
    let taken = refusal(client.lease_grant(60, Some(chosen(101))).await);
    let message = "etcdserver: lease already exists".to_owned();
    assert_eq!(taken, ("FailedPrecondition".into(), message));
    let given = client.lease_grant(123, None).await.unwrap();
    assert!(given.id() != 0 && given.ttl() == 123);
    let listed = client.leases().await.unwrap();
    let mut ids: Vec<i64> = listed
        .leases()
        .iter()
        .map(etcd_client::LeaseStatus::id)
        .collect();
    ids.sort_unstable();
    let mut wanted = vec![100, 101, 102, given.id()];
    wanted.sort_unstable();
    assert_eq!(ids, wanted);
    served.stop().await;
}

#[tokio::test]
async fn a_lease_has_its_time_and_its_keys_until_it_is_revoked() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.lease_grant(60, Some(chosen(7))).await.unwrap();
    for key in ["a", "b", "moved"] {
        let options = PutOptions::new().with_lease(7);
        client.put(key, "", Some(options)).await.unwrap();
    }
    client.put("moved", "", None).await.unwrap();
    let with_keys = || Some(LeaseTimeToLiveOptions::new().with_keys());
    let live = client.lease_time_to_live(7, with_keys()).await.unwrap();
    assert_eq!((live.id(), live.granted_ttl()), (7, 60));
    assert!((1..=60).contains(&live.ttl()), "{}", live.ttl());
    let mut keys = live.keys().to_vec();
    keys.sort();
    assert_eq!(keys, [b"a", b"b"]);
    let without = client.lease_time_to_live(7, None).await.unwrap();
    assert!(without.keys().is_empty());
    client.lease_revoke(7).await.unwrap();
    assert_eq!(client.get("a", None).await.unwrap().count(), 0);
    assert_eq!(client.get("moved", None).await.unwrap().count(), 1);
    let gone = client.lease_time_to_live(7, with_keys()).await.unwrap();
    assert_eq!((gone.ttl(), gone.granted_ttl()), (-1, 0));
    let again = refusal(client.lease_revoke(7).await);
    let message = "etcdserver: requested lease not found".to_owned();
    assert_eq!(again, ("NotFound".into(), message));
    served.stop().await;
}

#[tokio::test]
async fn a_lease_is_kept_alive_until_it_is_revoked() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let id = client.lease_grant(60, None).await.unwrap().id();
    let (mut keeper, mut responses) = client.lease_keep_alive(id).await.unwrap();
    for _ in 0..3 {
        keeper.keep_alive().await.unwrap();
        let kept = within(responses.message()).await.unwrap().unwrap();
        assert_eq!((kept.id(), kept.ttl()), (id, 60));
    }
    client.lease_revoke(id).await.unwrap();
    keeper.keep_alive().await.unwrap();
    let ended = within(responses.message()).await.unwrap().unwrap();
    assert_eq!((ended.id(), ended.ttl()), (id, 0));
    // The client takes a time of 0 for a lease that is gone.
    let refused = client.lease_keep_alive(id).await;
    assert!(
        matches!(refused, Err(Error::LeaseKeepAliveError(_))),
        "{refused:?}"
    );
    served.stop().await;
}
