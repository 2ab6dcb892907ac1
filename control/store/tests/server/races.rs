//! Concurrent clients: competing creates, and watches that start under load.

use std::collections::BTreeMap;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, GetOptions, Permission, Txn, TxnOp, WatchOptions,
};
use futures::future::join_all;

use crate::{
    harness::{Served, events, until, within},
    services::refusal,
};

const CLIENTS: usize = 8;
const KEYS: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_of_eight_concurrent_creates_of_a_key_succeeds() {
    let served = Served::start().await;
    let tasks: Vec<_> = join_all((0..CLIENTS).map(|_| served.client()))
        .await
        .into_iter()
        .enumerate()
        .map(|(name, mut client)| {
            tokio::spawn(async move {
                let mut won = Vec::new();
                for number in 0..KEYS {
                    let key = format!("key/{number}");
                    let absent = Compare::mod_revision(key.clone(), CompareOp::Equal, 0);
                    let create = TxnOp::put(key.clone(), name.to_string(), None);
                    let txn = Txn::new().when([absent]).and_then([create]);
                    if client.txn(txn).await.unwrap().succeeded() {
                        won.push((key, name.to_string()));
                    }
                }
                won
            })
        })
        .collect();
    let mut winners = BTreeMap::new();
    for task in tasks {
        for (key, name) in within(task).await.unwrap() {
            let other = winners.insert(key.clone(), name);
            assert_eq!(other, None, "{key} has two winners");
        }
    }
    assert_eq!(winners.len(), KEYS);
    let mut client = served.client().await;
    let all = client
        .get("key/", Some(GetOptions::new().with_prefix()))
        .await
        .unwrap();
    assert_eq!(all.kvs().len(), KEYS);
    for kv in all.kvs() {
        assert_eq!(kv.version(), 1);
        assert_eq!(winners[kv.key_str().unwrap()], kv.value_str().unwrap());
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_started_under_load_receive_every_revision_once_and_in_order() {
    let served = Served::start().await;
    let writers: Vec<_> = join_all((0..4).map(|_| served.client()))
        .await
        .into_iter()
        .map(|mut client| {
            tokio::spawn(async move {
                for number in 0..500 {
                    client
                        .put(format!("key/{}", number % 20), "x", None)
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    let mut client = served.client().await;
    let mut readers = Vec::new();
    for _ in 0..10 {
        let listed = client
            .get("key/", Some(GetOptions::new().with_prefix()))
            .await
            .unwrap();
        let next = listed.header().unwrap().revision() + 1;
        let options = WatchOptions::new().with_prefix().with_start_revision(next);
        let mut stream = client.watch("key/", Some(options)).await.unwrap();
        readers.push(tokio::spawn(async move {
            let wanted: Vec<i64> = (next..=2_001).collect();
            let got = events(&mut stream, wanted.len()).await;
            assert_eq!(
                got.into_iter().map(|event| event.0).collect::<Vec<_>>(),
                wanted
            );
        }));
    }
    for task in writers.into_iter().chain(readers) {
        within(task).await.unwrap();
    }
    served.stop().await;
}

async fn as_user(served: &Served, name: &str) -> Client {
    let options = ConnectOptions::new().with_user(name, name);
    Client::connect([&served.endpoint], Some(options))
        .await
        .unwrap()
}

/// Writes until the permission is denied; returns the revisions of the writes.
async fn write_until_denied(mut client: Client) -> Vec<i64> {
    let mut revisions = Vec::new();
    loop {
        match client.put("key", "x", None).await {
            Ok(response) => revisions.push(response.header().unwrap().revision()),
            error => match refusal(error).1.as_str() {
                // Clients try again then.
                "etcdserver: revision of auth store is old" => {}
                message => {
                    assert_eq!(message, "etcdserver: permission denied");
                    return revisions;
                }
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_follows_the_revocation_of_its_permission() {
    let served = Served::start().await;
    let mut client = served.client().await;
    for (name, role) in [("root", "root"), ("bob", "app")] {
        client.user_add(name, name, None).await.unwrap();
        client.role_add(role).await.unwrap();
        client.user_grant_role(name, role).await.unwrap();
    }
    let permission = Permission::read_write("key");
    client
        .role_grant_permission("app", permission)
        .await
        .unwrap();
    client.auth_enable().await.unwrap();
    let mut root = as_user(&served, "root").await;
    let bobs = join_all((0..CLIENTS).map(|_| as_user(&served, "bob"))).await;
    let writers: Vec<_> = bobs
        .into_iter()
        .map(|bob| tokio::spawn(write_until_denied(bob)))
        .collect();
    let written = async || served.store.revision() > 100;
    until("bob has written", written).await;
    let revoked = root.user_revoke_role("bob", "app").await.unwrap();
    let last = revoked.header().unwrap().revision();
    for writer in writers {
        let revisions = within(writer).await.unwrap();
        assert!(revisions.iter().all(|&revision| revision <= last));
    }
    assert_eq!(served.store.revision(), last);
    served.stop().await;
}
