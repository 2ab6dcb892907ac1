//! Watches from a list's revision: changes with their previous states, bookmarks, and the end by a compaction.

use std::time::Duration;

use dormouse_store::Limits;
use etcd_client::{Txn, TxnOp, WatchOptions};

use super::{
    reflector::{Change, Delivered, Reflector, changes, next, watch},
    storage::{Object, Storage},
};
use crate::harness::{Served, created, within};

const PODS: &str = "/registry/pods/";

async fn started() -> (Served, Storage) {
    let served = Served::start().await;
    let client = served.client().await;
    (served, Storage { client })
}

fn pod(name: &str, value: &str, revision: i64) -> Object {
    Object {
        key: format!("{PODS}{name}"),
        value: value.into(),
        revision,
    }
}

async fn write(storage: &mut Storage, name: &str, value: &str) -> i64 {
    let key = format!("{PODS}{name}");
    let expected = storage
        .get(&key)
        .await
        .0
        .map_or(0, |object| object.revision);
    storage.put(&key, value, expected, 0).await.revision()
}

async fn remove(storage: &mut Storage, name: &str) -> i64 {
    let key = format!("{PODS}{name}");
    let revision = storage.get(&key).await.0.unwrap().revision;
    storage.delete(&key, revision).await.revision()
}

#[tokio::test]
async fn an_object_is_added_modified_and_deleted() {
    let (served, mut storage) = started().await;
    let mut stream = watch(&mut storage, PODS, 1).await;
    write(&mut storage, "a", "1").await;
    write(&mut storage, "a", "2").await;
    storage.create("/registry/podsets/a", "").await.revision();
    remove(&mut storage, "a").await;
    write(&mut storage, "a", "3").await;
    let wanted = [
        Change::Added(pod("a", "1", 2)),
        Change::Modified(pod("a", "2", 3)),
        // The last state with the revision of the deletion.
        Change::Deleted(pod("a", "2", 5)),
        Change::Added(pod("a", "3", 6)),
    ];
    assert_eq!(changes(&mut stream, 4).await, wanted);
    served.stop().await;
}

#[tokio::test]
async fn a_watch_from_a_revision_has_only_what_is_later() {
    let (served, mut storage) = started().await;
    for value in ["1", "2", "3"] {
        write(&mut storage, "a", value).await;
    }
    let mut stream = watch(&mut storage, PODS, 3).await;
    let wanted = [Change::Modified(pod("a", "3", 4))];
    assert_eq!(changes(&mut stream, 1).await, wanted);
    let mut stream = watch(&mut storage, PODS, 4).await;
    write(&mut storage, "b", "1").await;
    let wanted = [Change::Added(pod("b", "1", 5))];
    assert_eq!(changes(&mut stream, 1).await, wanted);
    served.stop().await;
}

#[tokio::test]
async fn a_watch_of_a_namespace_has_no_event_of_another_one() {
    let (served, mut storage) = started().await;
    let mut stream = watch(&mut storage, "/registry/pods/one/", 1).await;
    for name in ["one/a", "one-more/a", "two/a", "one/b"] {
        write(&mut storage, name, "x").await;
    }
    let wanted = [pod("one/a", "x", 2), pod("one/b", "x", 5)].map(Change::Added);
    assert_eq!(changes(&mut stream, 2).await, wanted);
    served.stop().await;
}

#[tokio::test]
async fn a_list_and_a_watch_after_it_see_an_object_whose_history_is_compacted() {
    let (served, mut storage) = started().await;
    for value in ["1", "2"] {
        write(&mut storage, "a", value).await;
    }
    storage.client.compact(3, None).await.unwrap();
    let mut reflector = Reflector::start(&mut storage, PODS).await;
    assert_eq!(
        reflector.objects.values().collect::<Vec<_>>(),
        [&pod("a", "2", 3)]
    );
    write(&mut storage, "a", "3").await;
    reflector.reach(4).await;
    assert_eq!(
        reflector.objects.values().collect::<Vec<_>>(),
        [&pod("a", "3", 4)]
    );
    served.stop().await;
}

#[tokio::test]
async fn a_watch_from_a_compacted_revision_is_gone_and_a_new_list_goes_on() {
    let (served, mut storage) = started().await;
    for value in ["1", "2", "3", "4"] {
        write(&mut storage, "a", value).await;
    }
    storage.client.compact(4, None).await.unwrap();
    let mut stream = watch(&mut storage, PODS, 2).await;
    assert_eq!(next(&mut stream).await, Delivered::Gone(4));
    let mut reflector = Reflector::start(&mut storage, PODS).await;
    write(&mut storage, "b", "1").await;
    reflector.reach(6).await;
    assert_eq!(reflector.objects.len(), 2);
    served.stop().await;
}

#[tokio::test]
async fn an_update_whose_previous_state_is_compacted_has_none() {
    let (served, mut storage) = started().await;
    write(&mut storage, "a", "1").await;
    write(&mut storage, "a", "2").await;
    storage.client.compact(3, None).await.unwrap();
    let options = WatchOptions::new()
        .with_prefix()
        .with_start_revision(3)
        .with_prev_key();
    let mut stream = storage.client.watch(PODS, Some(options)).await.unwrap();
    created(&mut stream).await;
    let response = within(stream.message()).await.unwrap().unwrap();
    let [event] = response.events() else {
        panic!("{response:?}")
    };
    let kv = event.kv().unwrap();
    // By this, kube-apiserver sees that it is an update without a previous state, and lists again.
    assert!(event.prev_kv().is_none() && kv.create_revision() < kv.mod_revision());
    served.stop().await;
}

#[tokio::test]
async fn a_bookmark_follows_all_events_up_to_its_revision() {
    let (served, mut storage) = started().await;
    let mut writer = Storage {
        client: served.client().await,
    };
    let mut reflector = Reflector::start(&mut storage, PODS).await;
    let writing = tokio::spawn(async move {
        for round in 0..60 {
            let name = format!("{}", round % 7);
            write(&mut writer, &name, &round.to_string()).await;
            writer
                .create(&format!("/registry/other/{round}"), "")
                .await
                .revision();
            if round % 3 == 0 {
                remove(&mut writer, &name).await;
            }
        }
    });
    // A consistent read from a cache: learn the revision, wait for the bookmark, and serve what was delivered.
    loop {
        let ended = writing.is_finished();
        let (_, revision) = storage.get(PODS).await;
        reflector.reach(revision).await;
        let at = Some((reflector.revision, PODS.to_owned()));
        let truth = storage.page(PODS, 500, at).await.unwrap().objects;
        let cached: Vec<Object> = reflector.objects.values().cloned().collect();
        assert_eq!(cached, truth, "at revision {}", reflector.revision);
        if ended {
            break;
        }
    }
    within(writing).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn an_idle_watch_gets_bookmarks_of_the_writes_to_other_objects() {
    let limits = Limits {
        progress_interval: Duration::from_millis(50),
        ..Limits::default()
    };
    let served = Served::with_limits(limits).await;
    let mut storage = Storage {
        client: served.client().await,
    };
    let mut stream = watch(&mut storage, PODS, 1).await;
    let written = storage.create("/registry/events/a", "").await.revision();
    let bookmark = loop {
        match next(&mut stream).await {
            Delivered::Bookmark(revision) if revision >= written => break revision,
            Delivered::Bookmark(_) => {}
            other => panic!("{other:?}"),
        }
    };
    // From its bookmark, a watch resumes though everything before is compacted.
    storage.client.compact(bookmark, None).await.unwrap();
    let mut stream = watch(&mut storage, PODS, bookmark).await;
    let added = write(&mut storage, "a", "1").await;
    loop {
        match next(&mut stream).await {
            Delivered::Bookmark(_) => {}
            other => {
                let wanted = vec![Change::Added(pod("a", "1", added))];
                break assert_eq!(other, Delivered::Changes(wanted));
            }
        }
    }
    served.stop().await;
}

#[tokio::test]
async fn a_watch_that_is_read_late_misses_nothing() {
    let (served, mut storage) = started().await;
    let mut stream = watch(&mut storage, PODS, 1).await;
    for number in 0..300 {
        write(&mut storage, "a", &number.to_string()).await;
    }
    let seen = changes(&mut stream, 300).await;
    let wanted = |number: i64| {
        let object = pod("a", &number.to_string(), number + 2);
        if number == 0 {
            Change::Added(object)
        } else {
            Change::Modified(object)
        }
    };
    assert_eq!(seen, (0..300).map(wanted).collect::<Vec<_>>());
    served.stop().await;
}

#[tokio::test]
async fn the_events_of_one_transaction_come_in_one_response() {
    let (served, mut storage) = started().await;
    let mut stream = watch(&mut storage, PODS, 1).await;
    let puts: Vec<TxnOp> = (10..40)
        .map(|n| TxnOp::put(format!("{PODS}{n}"), "x", None))
        .collect();
    storage.client.txn(Txn::new().and_then(puts)).await.unwrap();
    let all: Vec<Change> = (10..40)
        .map(|n| Change::Added(pod(&n.to_string(), "x", 2)))
        .collect();
    assert_eq!(next(&mut stream).await, Delivered::Changes(all));
    served.stop().await;
}
