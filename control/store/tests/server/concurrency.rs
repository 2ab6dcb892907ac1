//! Locks and elections with the `etcd-client` crate: what becomes of those that wait.

use etcd_client::{Client, Error, GetOptions, LockOptions, ProclaimOptions, ResignOptions};

use crate::{
    harness::{Served, until, within},
    services::refusal,
};

async fn keys(client: &mut Client, prefix: &str) -> usize {
    let options = GetOptions::new().with_prefix().with_count_only();
    let counted = client.get(prefix, Some(options)).await.unwrap();
    usize::try_from(counted.count()).unwrap()
}

#[tokio::test]
async fn a_client_that_disappears_while_it_waits_leaves_no_key() {
    let served = Served::start().await;
    let mut holder = served.client().await;
    let held = holder.lock("m", None).await.unwrap();
    let mut waiter = served.client().await;
    let waiting = tokio::spawn(async move { waiter.lock("m", None).await });
    until("the waiter is in the queue", async || {
        keys(&mut holder.clone(), "m/").await == 2
    })
    .await;
    waiting.abort();
    until("the waiter's key is deleted", async || {
        keys(&mut holder.clone(), "m/").await == 1
    })
    .await;
    holder.unlock(held.key()).await.unwrap();
    within(holder.lock("m", None)).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn a_shutdown_ends_the_wait_for_a_lock_and_an_observer() {
    let served = Served::start().await;
    let mut holder = served.client().await;
    holder.lock("m", None).await.unwrap();
    let mut waiter = served.client().await;
    let waiting = tokio::spawn(async move { waiter.lock("m", None).await });
    let mut observer = served.client().await;
    let mut changes = observer.observe("e").await.unwrap();
    until("the waiter is in the queue", async || {
        keys(&mut holder.clone(), "m/").await == 2
    })
    .await;
    served.stop().await;
    let Err(Error::GRpcStatus(ended)) = within(waiting).await.unwrap() else {
        panic!("the lock was held")
    };
    assert!(!ended.message().is_empty());
    within(changes.message()).await.unwrap_err();
}

#[tokio::test]
async fn of_eight_clients_one_at_a_time_holds_a_lock() {
    let served = Served::start().await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = served.client().await;
        clients.push(tokio::spawn(async move {
            for _ in 0..5 {
                let lease = client.lease_grant(60, None).await.unwrap().id();
                let options = LockOptions::new().with_lease(lease);
                let held = client.lock("m", Some(options)).await.unwrap();
                // A put that another holder had made would not be a create.
                let entered = client.put("inside", "", None).await.unwrap();
                let own = client.get("inside", None).await.unwrap();
                let revision = entered.header().unwrap().revision();
                assert_eq!(own.kvs()[0].create_revision(), revision);
                client.delete("inside", None).await.unwrap();
                client.unlock(held.key()).await.unwrap();
            }
        }));
    }
    for client in clients {
        within(client).await.unwrap();
    }
    served.stop().await;
}

#[tokio::test]
async fn a_lock_ends_with_its_lease() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let options = || Some(LockOptions::new().with_lease(lease));
    let held = client.lock("mutex", options()).await.unwrap();
    assert_eq!(
        client.lock("mutex", options()).await.unwrap().key(),
        held.key()
    );
    client.lease_revoke(lease).await.unwrap();
    assert_eq!(client.get(held.key(), None).await.unwrap().count(), 0);
    let (code, _) = refusal(client.lock("mutex", options()).await);
    assert_eq!(code, "Unknown");
    served.stop().await;
}

#[tokio::test]
async fn observers_see_the_leader_its_proclamations_and_its_successor() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let mut leases = Vec::new();
    for _ in 0..2 {
        leases.push(client.lease_grant(60, None).await.unwrap().id());
    }
    let won = client.campaign("board", "one", leases[0]).await.unwrap();
    let leader = won.leader().unwrap().clone();
    assert_eq!(
        (leader.name(), leader.lease()),
        (b"board".as_slice(), leases[0])
    );
    let mut observed = client.observe("board").await.unwrap();
    let mut seen = async || {
        let response = within(observed.message()).await.unwrap().unwrap();
        response.kv().unwrap().value_str().unwrap().to_owned()
    };
    assert_eq!(seen().await, "one");
    let options = Some(ProclaimOptions::new().with_leader(leader.clone()));
    client.proclaim("uno", options).await.unwrap();
    assert_eq!(seen().await, "uno");
    let (mut other, lease) = (served.client().await, leases[1]);
    let successor =
        tokio::spawn(async move { other.campaign("board", "two", lease).await.unwrap() });
    let options = Some(ResignOptions::new().with_leader(leader));
    client.resign(options).await.unwrap();
    within(successor).await.unwrap();
    assert_eq!(seen().await, "two");
    let current = client.leader("board").await.unwrap();
    assert_eq!(current.kv().unwrap().lease(), leases[1]);
    served.stop().await;
}
