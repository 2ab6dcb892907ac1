//! Reads of ranges: their bounds, order, limits and filters, as one response and as a stream.

use std::ops::Range;

use etcd_client::{Client, GetOptions, GetResponse, SortOrder, SortTarget};

use super::{put_all, texts};
use crate::harness::{Served, within};

const PAIRS: [(&str, &str); 4] = [("a1", "4"), ("a2", "2"), ("b1", "3"), ("b2", "1")];

#[tokio::test]
async fn a_range_is_one_key_a_prefix_an_interval_or_all_from_a_key_on() {
    let served = Served::start().await;
    let mut client = served.client().await;
    put_all(&mut client, &PAIRS).await;
    let options = GetOptions::new;
    let cases: [(&str, GetOptions, Range<usize>, bool); 8] = [
        ("a2", options(), 1..2, false),
        ("a", options(), 0..0, false),
        ("a", options().with_prefix(), 0..2, false),
        ("a2", options().with_range("b2"), 1..3, false),
        ("a2", options().with_from_key(), 1..4, false),
        ("a2", options().with_from_key().with_limit(2), 1..3, true),
        ("", options().with_all_keys().with_limit(4), 0..4, false),
        ("a2", options().with_serializable(), 1..2, false),
    ];
    for (key, options, wanted, more) in cases {
        let read = client.get(key, Some(options.clone())).await.unwrap();
        assert_eq!(texts(read.kvs()), PAIRS[wanted], "{key} {options:?}");
        assert_eq!(read.more(), more, "{key} {options:?}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_range_is_sorted_filtered_and_reduced() {
    let served = Served::start().await;
    let mut client = served.client().await;
    put_all(&mut client, &PAIRS).await;
    client.put("a1", "5", None).await.unwrap();
    let all = || GetOptions::new().with_all_keys();
    let sorted = |target, order| all().with_sort(target, order);
    let cases: [(GetOptions, &[&str]); 8] = [
        (
            sorted(SortTarget::Key, SortOrder::Descend),
            &["b2", "b1", "a2", "a1"],
        ),
        (
            sorted(SortTarget::Value, SortOrder::Ascend),
            &["b2", "a2", "b1", "a1"],
        ),
        (
            sorted(SortTarget::Mod, SortOrder::Descend),
            &["a1", "b2", "b1", "a2"],
        ),
        (
            sorted(SortTarget::Create, SortOrder::Ascend),
            &["a1", "a2", "b1", "b2"],
        ),
        (
            sorted(SortTarget::Version, SortOrder::Descend).with_limit(1),
            &["a1"],
        ),
        (all().with_min_mod_revision(4), &["a1", "b1", "b2"]),
        (all().with_max_mod_revision(4), &["a2", "b1"]),
        (
            all()
                .with_min_create_revision(3)
                .with_max_create_revision(4),
            &["a2", "b1"],
        ),
    ];
    for (options, wanted) in cases {
        let read = client.get("", Some(options.clone())).await.unwrap();
        let keys: Vec<&str> = read.kvs().iter().map(|kv| kv.key_str().unwrap()).collect();
        assert_eq!(keys, wanted, "{options:?}");
        assert_eq!(read.count(), 4, "{options:?}");
    }
    let keys_only = client.get("a1", Some(GetOptions::new().with_keys_only()));
    assert_eq!(texts(keys_only.await.unwrap().kvs()), [("a1", "")]);
    let counted = client.get("", Some(all().with_count_only())).await.unwrap();
    assert_eq!((counted.count(), counted.kvs().len()), (4, 0));
    served.stop().await;
}

/// The responses of a stream.
async fn parts(client: &Client, key: &str, options: GetOptions) -> Vec<GetResponse> {
    let mut stream = client
        .kv_client()
        .get_stream(key, Some(options))
        .await
        .unwrap();
    let mut parts = Vec::new();
    while let Some(part) = within(stream.message()).await.unwrap() {
        parts.push(part);
    }
    parts
}

#[tokio::test]
async fn a_streamed_range_has_the_pairs_and_the_end_of_a_range() {
    let served = Served::start().await;
    let mut client = served.client().await;
    put_all(&mut client, &PAIRS).await;
    let options = GetOptions::new;
    for (key, options) in [
        ("a2", options()),
        ("a", options().with_prefix()),
        ("a2", options().with_from_key().with_limit(2)),
        ("missing", options()),
    ] {
        let whole = client.get(key, Some(options.clone())).await.unwrap();
        let parts = parts(&client, key, options).await;
        let [part] = parts.as_slice() else {
            panic!("{key}: {parts:?}")
        };
        assert_eq!(texts(part.kvs()), texts(whole.kvs()));
        assert_eq!((part.more(), part.count()), (whole.more(), whole.count()));
        assert_eq!(
            part.header().unwrap().revision(),
            whole.header().unwrap().revision()
        );
    }
    served.stop().await;
}

#[tokio::test]
async fn a_large_range_is_streamed_in_parts_with_its_end_in_the_last_one() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let value = vec![b'x'; 30_000];
    for number in 10..60 {
        client
            .put(format!("key/{number}"), value.clone(), None)
            .await
            .unwrap();
    }
    let options = GetOptions::new().with_prefix().with_limit(40);
    let parts = parts(&client, "key/", options).await;
    let (last, before) = parts.split_last().unwrap();
    assert!(before.len() > 1, "only {} parts", parts.len());
    for part in before {
        assert!(!part.kvs().is_empty());
        assert!(
            part.header().is_none() && !part.more() && part.count() == 0,
            "{part:?}"
        );
    }
    assert_eq!((last.more(), last.count()), (true, 50));
    let keys: Vec<String> = parts
        .iter()
        .flat_map(GetResponse::kvs)
        .map(|kv| kv.key_str().unwrap().to_owned())
        .collect();
    let wanted: Vec<String> = (10..50).map(|number| format!("key/{number}")).collect();
    assert_eq!(keys, wanted);
    served.stop().await;
}
