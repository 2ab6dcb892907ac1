//! Objects that are created, updated and deleted by compare-and-swap.

use super::storage::{Object, Storage, Written};
use crate::harness::{Served, within};

const KEY: &str = "/registry/pods/default/a";

async fn storage(served: &Served) -> Storage {
    Storage {
        client: served.client().await,
    }
}

fn object(value: &str, revision: i64) -> Object {
    Object {
        key: KEY.into(),
        value: value.into(),
        revision,
    }
}

#[tokio::test]
async fn an_object_is_created_once() {
    let served = Served::start().await;
    let mut storage = storage(&served).await;
    assert_eq!(storage.get(KEY).await, (None, 1));
    assert_eq!(storage.create(KEY, "one").await, Written::At(2));
    let conflict = Written::Conflict(Some(object("one", 2)));
    assert_eq!(storage.create(KEY, "two").await, conflict);
    assert_eq!(storage.get(KEY).await, (Some(object("one", 2)), 2));
    served.stop().await;
}

#[tokio::test]
async fn of_many_clients_that_create_an_object_one_succeeds() {
    let served = Served::start().await;
    let mut clients = Vec::new();
    for number in 0..16 {
        let mut storage = storage(&served).await;
        clients.push(tokio::spawn(async move {
            let value = number.to_string();
            (storage.create(KEY, &value).await, value)
        }));
    }
    let mut created = Vec::new();
    for client in clients {
        if let (Written::At(revision), value) = within(client).await.unwrap() {
            created.push(object(&value, revision));
        }
    }
    let [winner] = created.as_slice() else {
        panic!("created: {created:?}")
    };
    let (stored, _) = storage(&served).await.get(KEY).await;
    assert_eq!(stored.as_ref(), Some(winner));
    served.stop().await;
}

#[tokio::test]
async fn an_update_of_an_outdated_object_returns_the_newer_one() {
    let served = Served::start().await;
    let mut storage = storage(&served).await;
    let first = storage.create(KEY, "1").await.revision();
    let second = storage.put(KEY, "2", first, 0).await.revision();
    let outdated = storage.put(KEY, "3", first, 0).await;
    assert_eq!(outdated, Written::Conflict(Some(object("2", second))));
    // An update of what does not exist: the compared revision is not 0.
    storage.delete(KEY, second).await.revision();
    let missing = storage.put(KEY, "3", second, 0).await;
    assert_eq!(missing, Written::Conflict(None));
    served.stop().await;
}

#[tokio::test]
async fn an_update_that_changes_nothing_writes_nothing() {
    let served = Served::start().await;
    let mut storage = storage(&served).await;
    let revision = storage.create(KEY, "same").await.revision();
    let suggested = object("same", revision);
    let updated = storage.update(suggested, |_| "same".into()).await;
    assert_eq!(updated, (revision, 0));
    assert_eq!(storage.get(KEY).await.1, revision);
    served.stop().await;
}

#[tokio::test]
async fn an_update_from_an_outdated_suggestion_starts_from_the_newest_state() {
    let served = Served::start().await;
    let mut storage = storage(&served).await;
    let first = storage.create(KEY, "1").await.revision();
    let second = storage.put(KEY, "12", first, 0).await.revision();
    let change = |value: &str| format!("{value}3");
    let updated = storage.update(object("1", first), change).await;
    assert_eq!(updated, (second + 1, 1));
    assert_eq!(storage.get(KEY).await.0, Some(object("123", second + 1)));
    served.stop().await;
}

#[tokio::test]
async fn concurrent_updates_of_one_object_are_all_applied() {
    const CLIENTS: i64 = 8;
    const UPDATES: i64 = 25;
    let served = Served::start().await;
    let created = storage(&served).await.create(KEY, "0").await.revision();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut storage = storage(&served).await;
        clients.push(tokio::spawn(async move {
            let mut revisions = Vec::new();
            for _ in 0..UPDATES {
                let increment = |value: &str| (value.parse::<i64>().unwrap() + 1).to_string();
                let suggested = storage.get(KEY).await.0.unwrap();
                revisions.push(storage.update(suggested, increment).await.0);
            }
            revisions
        }));
    }
    let mut revisions = Vec::new();
    for client in clients {
        revisions.extend(within(client).await.unwrap());
    }
    revisions.sort_unstable();
    let wanted: Vec<i64> = (1..=CLIENTS * UPDATES).map(|n| created + n).collect();
    assert_eq!(revisions, wanted);
    let (stored, _) = storage(&served).await.get(KEY).await;
    assert_eq!(stored.unwrap().value, (CLIENTS * UPDATES).to_string());
    served.stop().await;
}

#[tokio::test]
async fn a_deletion_of_an_outdated_object_returns_the_newer_one() {
    let served = Served::start().await;
    let mut storage = storage(&served).await;
    let first = storage.create(KEY, "1").await.revision();
    let second = storage.put(KEY, "2", first, 0).await.revision();
    let conflict = storage.delete(KEY, first).await;
    assert_eq!(conflict, Written::Conflict(Some(object("2", second))));
    assert_eq!(storage.delete(KEY, second).await, Written::At(second + 1));
    assert_eq!(storage.delete(KEY, second).await, Written::Conflict(None));
    // The failed deletion made no revision; the object can be created again.
    assert_eq!(storage.create(KEY, "3").await, Written::At(second + 2));
    served.stop().await;
}

#[tokio::test]
async fn the_revision_of_a_read_is_not_below_any_acknowledged_write() {
    let served = Served::start().await;
    let (mut writer, mut reader) = (storage(&served).await, storage(&served).await);
    for number in 0..200 {
        let key = format!("/registry/pods/default/{number}");
        let written = writer.create(&key, "").await.revision();
        // A read of another object, on another connection: the revision that a consistent list waits for.
        let (missing, revision) = reader.get("/registry/pods/").await;
        assert!(
            missing.is_none() && revision >= written,
            "{revision} {written}"
        );
    }
    served.stop().await;
}
