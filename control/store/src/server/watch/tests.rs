//! Watch streams without a transport: the order of responses when the client does not read.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use futures::FutureExt;
use tokio::sync::mpsc::{Receiver, channel, error::TryRecvError};

use super::*;
use crate::proto::etcdserverpb::PutRequest;

type Responses = Receiver<Result<WatchResponse, Status>>;

fn create() -> WatchRequest {
    let request = WatchCreateRequest {
        key: "key".into(),
        ..Default::default()
    };
    WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(request)),
    }
}

async fn put(store: &Store) {
    let request = PutRequest {
        key: "key".into(),
        ..Default::default()
    };
    store.put(&request).await.unwrap();
}

fn received(responses: &mut Responses) -> Vec<WatchResponse> {
    let mut all = Vec::new();
    loop {
        match responses.try_recv() {
            Ok(response) => all.push(response.unwrap()),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return all,
        }
    }
}

/// Polls until the future ends; after each poll that blocked, the client reads and a write follows.
fn drive<F: Future>(future: F, mut blocked: impl FnMut()) -> F::Output {
    let mut future = pin!(future);
    loop {
        match future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(output) => return output,
            Poll::Pending => blocked(),
        }
    }
}

#[tokio::test]
async fn after_it_is_canceled_a_watch_gets_nothing_more() {
    let store = Store::new();
    let (out, mut responses) = channel(1);
    let mut stream = WatchStream::new(store.clone(), Credentials::default(), out);
    stream.request(create()).await.ok().unwrap();
    let mut all = received(&mut responses);
    stream.request(create()).await.ok().unwrap();
    // More events than stay readable below the compacted revision.
    for _ in 0..20_000 {
        put(&store).await;
    }
    store.compact(store.revision(), true).await.unwrap();
    // The queue is full: each watch is canceled while a write matches the next one.
    for _ in 0..4 {
        let served = drive(stream.send_events(), || {
            put(&store).now_or_never().unwrap();
            all.extend(received(&mut responses));
        });
        served.ok().unwrap();
        all.extend(received(&mut responses));
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
    const VALUE_BYTES: usize = 64 << 10;
    let store = Store::new();
    let (out, mut responses) = channel(1);
    let mut stream = WatchStream::new(store.clone(), Credentials::default(), out);
    stream.request(create()).await.ok().unwrap();
    assert_eq!(received(&mut responses).len(), 1);
    for _ in 0..100 {
        let request = PutRequest {
            key: "key".into(),
            value: vec![b'v'; VALUE_BYTES].into(),
            ..Default::default()
        };
        store.put(&request).await.unwrap();
    }
    let mut events = 0;
    while events < 100 {
        // Ends without a read: the queue takes the whole page.
        stream.send_events().await.ok().unwrap();
        let pages = received(&mut responses);
        let [page] = pages.as_slice() else {
            panic!("{} pages in the queue", pages.len());
        };
        assert!(page.events.len() <= 5, "{} events", page.events.len());
        events += page.events.len();
    }
}
