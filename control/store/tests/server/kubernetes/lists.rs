//! Lists: whole, in pages at one revision, at old revisions, and after a compaction.

use etcd_client::{GetOptions, GetResponse};

use super::storage::{Object, Storage};
use crate::{
    harness::{Served, within},
    services::refusal,
};

const PODS: &str = "/registry/pods/";

const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// A server with objects in two namespaces, and neighbours whose keys begin alike.
async fn filled() -> (Served, Storage) {
    let served = Served::start().await;
    let mut storage = Storage {
        client: served.client().await,
    };
    for number in 0..25 {
        let namespace = if number % 5 == 0 { "other" } else { "default" };
        let key = format!("{PODS}{namespace}/{number:02}");
        storage.create(&key, "first").await.revision();
    }
    for key in ["/registry/pods", "/registry/pods0", "/registry/podsets/a"] {
        storage.create(key, "neighbour").await.revision();
    }
    (served, storage)
}

fn keys(objects: &[Object]) -> Vec<&str> {
    objects.iter().map(|object| object.key.as_str()).collect()
}

#[tokio::test]
async fn a_list_has_only_the_objects_below_its_prefix() {
    let (served, mut storage) = filled().await;
    let (all, revision) = storage.list(PODS, 500).await;
    assert_eq!((all.len(), revision), (25, 29));
    assert!(all.iter().all(|object| object.key.starts_with(PODS)));
    assert!(all.is_sorted_by(|a, b| a.key < b.key));
    let (namespaced, _) = storage.list("/registry/pods/other/", 500).await;
    assert_eq!(namespaced.len(), 5);
    let (none, revision) = storage.list("/registry/nothing/", 500).await;
    assert_eq!((none.len(), revision), (0, 29));
    assert_eq!(storage.count(PODS).await, 25);
    assert_eq!(storage.count("/registry/nothing/").await, 0);
    served.stop().await;
}

#[tokio::test]
async fn pages_of_each_size_are_the_whole_list() {
    let (served, mut storage) = filled().await;
    let (whole, _) = storage.list(PODS, 500).await;
    for limit in [1, 2, 7, 24, 25, 26] {
        assert_eq!(storage.list(PODS, limit).await.0, whole, "limit {limit}");
        let first = storage.page(PODS, limit, None).await.unwrap();
        assert_eq!(first.objects.len() + first.remaining, 25);
        assert_eq!(first.next.is_some(), limit < 25);
    }
    served.stop().await;
}

#[tokio::test]
async fn later_pages_are_at_the_revision_of_the_first_one() {
    let (served, mut storage) = filled().await;
    let (whole, revision) = storage.list(PODS, 500).await;
    let first = storage.page(PODS, 10, None).await.unwrap();
    // Updates, deletions and creations before and after the place where the list goes on.
    for object in [&whole[1], &whole[15]] {
        storage
            .put(&object.key, "second", object.revision, 0)
            .await
            .revision();
    }
    for object in [&whole[2], &whole[20]] {
        storage
            .delete(&object.key, object.revision)
            .await
            .revision();
    }
    for key in ["default/0", "other/zz"] {
        storage
            .create(&format!("{PODS}{key}"), "new")
            .await
            .revision();
    }
    let rest = storage.page(PODS, 500, first.next).await.unwrap();
    let pages = [first.objects, rest.objects].concat();
    assert_eq!(pages, whole);
    assert_eq!((rest.revision, rest.remaining), (revision, 0));
    let (now, newer) = storage.list(PODS, 3).await;
    assert_eq!((now.len(), newer), (25, revision + 6));
    assert_ne!(now, whole);
    served.stop().await;
}

#[tokio::test]
async fn a_list_goes_on_at_the_newest_revision_when_its_own_is_compacted() {
    let (served, mut storage) = filled().await;
    let (whole, revision) = storage.list(PODS, 500).await;
    let first = storage.page(PODS, 10, None).await.unwrap();
    let removed = &whole[12];
    storage
        .delete(&removed.key, removed.revision)
        .await
        .revision();
    storage.client.compact(revision + 1, None).await.unwrap();
    let (at, from) = first.next.unwrap();
    let gone = refusal(storage.page(PODS, 10, Some((at, from.clone()))).await);
    assert_eq!(gone, ("OutOfRange".into(), COMPACTED.into()));
    // A continue token without a revision: the rest, as it is now.
    let rest = storage.page(PODS, 500, Some((0, from))).await.unwrap();
    assert_eq!(rest.revision, revision + 1);
    let wanted: Vec<&str> = keys(&whole[10..]);
    let wanted: Vec<&str> = wanted
        .into_iter()
        .filter(|key| *key != removed.key)
        .collect();
    assert_eq!(keys(&rest.objects), wanted);
    served.stop().await;
}

#[tokio::test]
async fn a_list_at_an_exact_revision_is_what_it_was_or_refused() {
    let (served, mut storage) = filled().await;
    let (whole, revision) = storage.list(PODS, 500).await;
    for object in &whole {
        storage
            .delete(&object.key, object.revision)
            .await
            .revision();
    }
    let mut exact = async |revision| {
        let from = Some((revision, PODS.to_owned()));
        storage.page(PODS, 500, from).await
    };
    assert_eq!(exact(revision).await.unwrap().objects, whole);
    assert_eq!(exact(revision + 5).await.unwrap().objects, whole[5..]);
    assert!(exact(revision + 25).await.unwrap().objects.is_empty());
    // Half of the objects existed at revision 13: one per revision from 2 on.
    assert_eq!(exact(13).await.unwrap().objects.len(), 12);
    let future = "etcdserver: mvcc: required revision is a future revision";
    let refused = refusal(exact(revision + 26).await);
    assert_eq!(refused, ("OutOfRange".into(), future.into()));
    served.stop().await;
}

#[tokio::test]
async fn a_count_at_an_old_revision_is_that_of_its_list() {
    let (served, mut storage) = filled().await;
    let (whole, revision) = storage.list(PODS, 500).await;
    for object in whole.iter().step_by(2) {
        storage
            .delete(&object.key, object.revision)
            .await
            .revision();
    }
    for at in 1..=revision + 13 {
        let page = storage
            .page(PODS, 3, Some((at, PODS.into())))
            .await
            .unwrap();
        let options = GetOptions::new().with_prefix().with_revision(at);
        let all = storage.client.get(PODS, Some(options)).await.unwrap();
        let counted = page.objects.len() + page.remaining;
        assert_eq!(counted, all.kvs().len(), "revision {at}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_streamed_list_is_the_paged_one() {
    let (served, mut storage) = filled().await;
    let (whole, revision) = storage.list(PODS, 4).await;
    storage
        .delete(&whole[0].key, whole[0].revision)
        .await
        .revision();
    let options = GetOptions::new().with_prefix().with_revision(revision);
    let kv = storage
        .client
        .kv_client()
        .get_stream(PODS, Some(options))
        .await;
    let mut stream = kv.unwrap();
    let mut parts: Vec<GetResponse> = Vec::new();
    while let Some(part) = within(stream.message()).await.unwrap() {
        parts.push(part);
    }
    let streamed: Vec<Object> = parts
        .iter()
        .flat_map(GetResponse::kvs)
        .map(Object::new)
        .collect();
    assert_eq!(streamed, whole);
    let last = parts.last().unwrap();
    assert_eq!((last.count(), last.more()), (25, false));
    served.stop().await;
}

#[tokio::test]
async fn each_list_beside_writers_is_a_state_that_was() {
    let served = Served::start().await;
    let mut writer = Storage {
        client: served.client().await,
    };
    let mut reader = Storage {
        client: served.client().await,
    };
    let key = |number: usize| format!("{PODS}default/{number:03}");
    let writing = tokio::spawn(async move {
        // One object at a time is created in order: a state is the first n objects.
        for number in 0..300 {
            writer.create(&key(number), "").await.revision();
        }
    });
    loop {
        let (objects, revision) = reader.list(PODS, 7).await;
        let wanted: Vec<String> = (0..objects.len()).map(key).collect();
        assert_eq!(keys(&objects), wanted);
        assert_eq!(usize::try_from(revision).unwrap(), objects.len() + 1);
        if objects.len() == 300 {
            break;
        }
    }
    within(writing).await.unwrap();
    served.stop().await;
}
