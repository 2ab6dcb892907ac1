//! Puts, deletes and compactions.

use etcd_client::{CompactionOptions, DeleteOptions, GetOptions, KvClientPrefix, PutOptions};

use super::{put_all, texts};
use crate::{harness::Served, services::refusal};

#[tokio::test]
async fn a_put_returns_the_pair_that_it_replaces() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let with_previous = || Some(PutOptions::new().with_prev_key());
    let first = client.put("key", "1", with_previous()).await.unwrap();
    assert!(first.prev_key().is_none());
    for (previous, value) in [("1", "2"), ("2", "3")] {
        let put = client.put("key", value, with_previous()).await.unwrap();
        let replaced = put.prev_key().unwrap();
        assert_eq!(replaced.value_str().unwrap(), previous);
        assert_eq!(replaced.create_revision(), 2);
        assert_eq!(
            replaced.mod_revision(),
            put.header().unwrap().revision() - 1
        );
    }
    let silent = client.put("key", "4", None).await.unwrap();
    assert!(silent.prev_key().is_none());
    served.stop().await;
}

#[tokio::test]
async fn a_put_keeps_the_value_or_the_lease_that_it_ignores() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let leased = PutOptions::new().with_lease(lease);
    client.put("key", "1", Some(leased)).await.unwrap();
    let same_lease = PutOptions::new().with_ignore_lease();
    client.put("key", "2", Some(same_lease)).await.unwrap();
    let same_value = PutOptions::new().with_ignore_value();
    client.put("key", "", Some(same_value)).await.unwrap();
    let read = client.get("key", None).await.unwrap();
    let kv = &read.kvs()[0];
    // The last put named no lease.
    assert_eq!(
        (kv.value_str().unwrap(), kv.version(), kv.lease()),
        ("2", 3, 0)
    );
    for options in [
        PutOptions::new().with_ignore_value(),
        PutOptions::new().with_ignore_lease(),
    ] {
        let (code, _) = refusal(client.put("missing", "", Some(options)).await);
        assert_eq!(code, "InvalidArgument");
    }
    served.stop().await;
}

#[tokio::test]
async fn one_key_a_range_a_prefix_and_all_keys_are_deleted() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let pairs = ["a1", "a2", "b1", "b2", "c1", "c2", "d"].map(|key| (key, key));
    put_all(&mut client, &pairs).await;
    let one = client.delete("a2", None).await.unwrap();
    assert_eq!(one.deleted(), 1);
    let range = DeleteOptions::new().with_range("b2").with_prev_key();
    let range = client.delete("a2", Some(range)).await.unwrap();
    assert_eq!(texts(range.prev_kvs()), [("b1", "b1")]);
    let prefix = DeleteOptions::new().with_prefix();
    assert_eq!(client.delete("c", Some(prefix)).await.unwrap().deleted(), 2);
    let from = DeleteOptions::new().with_from_key();
    assert_eq!(client.delete("b3", Some(from)).await.unwrap().deleted(), 1);
    let none = client.delete("b3", None).await.unwrap();
    assert_eq!(none.deleted(), 0);
    let all = GetOptions::new().with_all_keys();
    let left = client.get("", Some(all)).await.unwrap();
    assert_eq!(texts(left.kvs()), [("a1", "a1"), ("b2", "b2")]);
    // A deletion of nothing makes no revision.
    assert_eq!(
        none.header().unwrap().revision(),
        left.header().unwrap().revision()
    );
    let all = DeleteOptions::new().with_all_keys();
    assert_eq!(client.delete("", Some(all)).await.unwrap().deleted(), 2);
    served.stop().await;
}

#[tokio::test]
async fn a_compaction_removes_what_is_older_than_its_revision() {
    let served = Served::start().await;
    let mut client = served.client().await;
    put_all(&mut client, &[("key", "0"), ("key", "1")]).await;
    let at = |revision| Some(GetOptions::new().with_revision(revision));
    for (revision, value) in [(2, "0"), (3, "1")] {
        let read = client.get("key", at(revision)).await.unwrap();
        assert_eq!(texts(read.kvs()), [("key", value)]);
    }
    let physical = CompactionOptions::new().with_physical();
    client.compact(3, Some(physical)).await.unwrap();
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    let future = "etcdserver: mvcc: required revision is a future revision";
    let refused = |message: &str| ("OutOfRange".to_owned(), message.to_owned());
    assert_eq!(refusal(client.get("key", at(2)).await), refused(compacted));
    assert_eq!(refusal(client.compact(3, None).await), refused(compacted));
    assert_eq!(refusal(client.get("key", at(4)).await), refused(future));
    assert_eq!(refusal(client.compact(4, None).await), refused(future));
    let read = client.get("key", at(3)).await.unwrap();
    assert_eq!(texts(read.kvs()), [("key", "1")]);
    served.stop().await;
}

#[tokio::test]
async fn a_client_of_a_namespace_reads_and_writes_below_its_prefix() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let mut inside = KvClientPrefix::new(client.kv_client(), "space/".into());
    inside.put("a", "1", None).await.unwrap();
    put_all(&mut client, &[("a", "outside"), ("spacf", "outside")]).await;
    let read = inside.get("a", None).await.unwrap();
    assert_eq!(texts(read.kvs()), [("a", "1")]);
    let read = client.get("space/a", None).await.unwrap();
    assert_eq!(texts(read.kvs()), [("space/a", "1")]);
    let range = DeleteOptions::new().with_range("z").with_prev_key();
    let deleted = inside.delete("a", Some(range)).await.unwrap();
    assert_eq!(texts(deleted.prev_kvs()), [("a", "1")]);
    let left = client.get("a", Some(GetOptions::new().with_from_key()));
    assert_eq!(left.await.unwrap().count(), 2);
    served.stop().await;
}
