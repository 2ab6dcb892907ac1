//! The watches of a stream whose client does not read.

use super::*;
use crate::proto::etcdserverpb::{PutRequest, WatchProgressRequest};

fn create() -> WatchRequest {
    let request = WatchCreateRequest {
        key: "key".into(),
        ..Default::default()
    };
    WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(request)),
    }
}

async fn put(store: &Store, value_bytes: usize) {
    let request = PutRequest {
        key: "key".into(),
        value: vec![b'v'; value_bytes].into(),
        ..Default::default()
    };
    store.put(&request).await.unwrap();
}

/// The responses that are ready to be sent.
fn received(watches: &mut Watches) -> Vec<WatchResponse> {
    std::iter::from_fn(|| watches.pop()).collect()
}

#[tokio::test]
async fn after_it_is_canceled_a_watch_gets_nothing_more() {
    let store = Store::new();
    let mut watches = Watches::new(store.clone(), Credentials::default());
    watches.request(create());
    watches.request(create());
    let mut all = received(&mut watches);
    // More events than stay readable below the compacted revision.
    for _ in 0..20_000 {
        put(&store, 0).await;
    }
    store.compact(store.revision(), true).await.unwrap();
    // Each watch is canceled while a write matches both.
    for _ in 0..10 {
        watches.read();
        put(&store, 0).await;
        all.extend(received(&mut watches));
    }
    for id in [0, 1] {
        let of_watch = all.iter().filter(|response| response.watch_id == id);
        let kinds: Vec<_> = of_watch
            .map(|response| (response.created, response.canceled, response.events.len()))
            .collect();
        assert_eq!(kinds, [(true, false, 0), (false, true, 0)], "watch {id}");
    }
}

#[tokio::test]
async fn a_stream_whose_client_does_not_read_holds_one_page() {
    let store = Store::new();
    let mut watches = Watches::new(store.clone(), Credentials::default());
    watches.request(create());
    assert_eq!(received(&mut watches).len(), 1);
    for _ in 0..100 {
        put(&store, 64 << 10).await;
    }
    let mut events = 0;
    while events < 100 {
        watches.read();
        let pages = received(&mut watches);
        let [page] = pages.as_slice() else {
            panic!("{} pages in the queue", pages.len());
        };
        assert!(page.events.len() <= 5, "{} events", page.events.len());
        events += page.events.len();
    }
    assert!(!watches.has_more());
}

#[tokio::test]
async fn a_progress_request_is_not_answered_while_a_watch_is_compacted() {
    let store = Store::new();
    let mut watches = Watches::new(store.clone(), Credentials::default());
    for _ in 0..3 {
        put(&store, 0).await;
    }
    store.compact(3, true).await.unwrap();
    let ask = |watches: &mut Watches| {
        let request = RequestUnion::ProgressRequest(WatchProgressRequest {});
        watches.request(WatchRequest {
            request_union: Some(request),
        });
        watches.read();
        received(watches).len()
    };
    watches.request(create());
    received(&mut watches);
    assert_eq!(ask(&mut watches), 1);
    let mut late = create();
    if let Some(RequestUnion::CreateRequest(request)) = &mut late.request_union {
        request.start_revision = 1;
    }
    watches.request(late);
    assert!(received(&mut watches)[1].canceled);
    assert_eq!(ask(&mut watches), 0);
    watches.cancel(1);
    received(&mut watches);
    assert_eq!(ask(&mut watches), 1);
}
