//! A watch of a server, whose responses are recorded, with bookmarks that the client requests.

use std::time::Duration;

use etcd_client::{Client, Error, EventType, WatchOptions, WatchResponse, WatchStream};
use tokio::sync::watch::Receiver;

use crate::{
    clients::call::version,
    history::{Delivery, Event, Key, Revision, Watch},
};

/// Interval of the requests for a bookmark.
const BOOKMARK_INTERVAL: Duration = Duration::from_millis(5);

/// Deliveries after which a bookmark is requested while events arrive.
const BOOKMARK_DELIVERIES: usize = 16;

/// Watches the keys with a prefix from a revision on. Ends when the watch has reached the revision in `until`, or when
/// the server cancels the watch or ends the stream.
///
/// # Errors
/// The client could not connect.
pub async fn record(
    endpoint: &str,
    prefix: Key,
    start: Revision,
    mut until: Receiver<Revision>,
) -> Result<Watch, Error> {
    let mut client = Client::connect([endpoint], None).await?;
    let options = WatchOptions::new()
        .with_prefix()
        .with_prev_key()
        .with_start_revision(start);
    let mut stream = client.watch(prefix.as_str(), Some(options)).await?;
    let mut watch = Watch {
        start,
        prefix,
        deliveries: Vec::new(),
    };
    while watch.reached() < *until.borrow_and_update() {
        let Some(response) = next(&mut stream).await else {
            break;
        };
        let Some(response) = response else { continue };
        watch.deliveries.push(delivery(&response));
        let due = watch.deliveries.len().is_multiple_of(BOOKMARK_DELIVERIES);
        if due && stream.request_progress().await.is_err() {
            break;
        }
    }
    Ok(watch)
}

/// The next response, `Some(None)` if there is nothing to record, `None` at the end of the stream.
async fn next(stream: &mut WatchStream) -> Option<Option<WatchResponse>> {
    match tokio::time::timeout(BOOKMARK_INTERVAL, stream.message()).await {
        Ok(Ok(Some(response))) if response.canceled() => None,
        Ok(Ok(Some(response))) => Some((!response.created()).then_some(response)),
        Ok(Ok(None) | Err(_)) => None,
        Err(_) => stream.request_progress().await.ok().map(|()| None),
    }
}

fn delivery(response: &WatchResponse) -> Delivery {
    Delivery {
        revision: response
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision),
        events: response.events().iter().filter_map(event).collect(),
    }
}

fn event(event: &etcd_client::Event) -> Option<Event> {
    let kv = event.kv()?;
    let put = event.event_type() == EventType::Put;
    Some(Event {
        revision: kv.mod_revision(),
        key: kv.key_str().ok()?.to_owned(),
        value: put.then(|| version(kv).value),
        previous: event.prev_kv().map(version),
    })
}
