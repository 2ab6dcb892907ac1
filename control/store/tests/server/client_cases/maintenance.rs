//! Alarms, status, hashes, snapshots, and the members of the cluster.

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, MemberAddOptions};

use crate::{
    harness::{Served, within},
    services::refusal,
};

#[tokio::test]
async fn a_new_store_has_no_alarm() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let options = || Some(AlarmOptions::new());
    let off = client.alarm(AlarmAction::Deactivate, AlarmType::None, options());
    assert!(off.await.unwrap().alarms().is_empty());
    for kind in [AlarmType::None, AlarmType::Nospace, AlarmType::Corrupt] {
        let listed = client
            .alarm(AlarmAction::Get, kind, options())
            .await
            .unwrap();
        assert!(listed.alarms().is_empty());
    }
    served.stop().await;
}

#[tokio::test]
async fn the_status_has_sizes_a_leader_and_a_version() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.put("key", "value", None).await.unwrap();
    let status = client.status().await.unwrap();
    assert!(status.db_size() > 0 && status.raft_used_db_size() > 0);
    assert_eq!(status.db_size_quota(), 2 << 30);
    assert_eq!(status.header().unwrap().revision(), 2);
    assert_eq!(status.leader(), status.header().unwrap().member_id());
    assert!(!status.is_learner() && status.errors().is_empty());
    assert!(status.raft_applied_index() <= status.raft_index());
    // kube-apiserver reads consistently from its cache from 3.4.31 and 3.5.13 on.
    assert_eq!(status.version(), "3.7.0");
    served.stop().await;
}

#[tokio::test]
async fn hashes_name_their_revision_and_the_compacted_one() {
    let served = Served::start().await;
    let mut client = served.client().await;
    for value in ["1", "2", "3"] {
        client.put("key", value, None).await.unwrap();
    }
    let hash = client.hash().await.unwrap();
    assert!(hash.hash() != 0 && hash.header().is_some());
    let new = client.hash_kv(0).await.unwrap();
    assert_eq!((new.hash_revision(), new.compact_version()), (4, -1));
    client.compact(3, None).await.unwrap();
    let compacted = client.hash_kv(0).await.unwrap();
    assert_eq!(
        (compacted.hash_revision(), compacted.compact_version()),
        (4, 3)
    );
    assert_ne!(compacted.hash(), 0);
    assert_eq!(refusal(client.hash_kv(2).await).0, "OutOfRange");
    assert_eq!(refusal(client.hash_kv(9).await).0, "OutOfRange");
    let defragmented = client.defragment().await.unwrap();
    assert!(defragmented.header().is_none());
    served.stop().await;
}

#[tokio::test]
async fn each_part_of_a_snapshot_has_bytes() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.put("key", "value", None).await.unwrap();
    let mut stream = client.snapshot().await.unwrap();
    let mut left = u64::MAX;
    while let Some(part) = within(stream.message()).await.unwrap() {
        assert!(!part.blob().is_empty());
        left = part.remaining_bytes();
    }
    assert_eq!(left, 0);
    served.stop().await;
}

#[tokio::test]
async fn a_learner_is_listed_until_it_is_removed_and_the_leader_stays() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let leader = client.status().await.unwrap().leader();
    let moved = client.move_leader(leader).await.unwrap();
    assert!(moved.header().is_none());
    let options = MemberAddOptions::new().with_is_learner();
    let added = client
        .member_add(["http://node:2380"], Some(options))
        .await
        .unwrap();
    let learner = added.member().unwrap().id();
    let listed = client.member_list().await.unwrap();
    let found = listed
        .members()
        .iter()
        .find(|member| member.id() == learner);
    let found = found.unwrap();
    assert!(found.is_learner());
    assert_eq!(found.peer_urls(), ["http://node:2380"]);
    // A learner never catches up.
    assert_eq!(
        refusal(client.member_promote(learner).await).0,
        "FailedPrecondition"
    );
    client
        .member_update(learner, vec!["http://node:2381".to_owned()])
        .await
        .unwrap();
    client.member_remove(learner).await.unwrap();
    let listed = client.member_list().await.unwrap();
    assert_eq!(listed.members().len(), 1);
    assert_eq!(client.status().await.unwrap().leader(), leader);
    served.stop().await;
}
