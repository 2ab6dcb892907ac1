//! Untyped watches of keys.

use std::sync::Arc;

use etcd_client::{EventType, WatchClient, WatchOptions, WatchResponse, WatchStream};
use futures::{Stream, stream};
use tokio::time::{Duration, Instant, Interval};

use super::{ClientError, KeyRange, Previous, signed, unsigned};

/// A put or a deletion of one key.
#[derive(Debug, Clone)]
pub struct WatchEvent {
    /// The key.
    pub path: Vec<u8>,
    /// The new value; `None` if the key was deleted.
    pub value: Option<Vec<u8>>,
    /// The previous value; `None` if the key was created, the previous value is compacted, or it was not asked for.
    pub previous: Option<Vec<u8>>,
    /// The revision of the event.
    pub revision: u64,
}

/// What a watch delivers.
#[derive(Debug, Clone)]
pub enum Observed {
    /// Events in order; a batch never splits a revision.
    Events(Vec<WatchEvent>),
    /// All events up to this revision were delivered.
    Progress(u64),
}

/// A watch, and when it asks for its progress.
struct Watch {
    stream: WatchStream,
    /// The revision before the first.
    known: u64,
    asks: Option<Interval>,
}

/// Starts a watch of the keys of `range` after `revision`, which asks for its progress at these times.
pub(super) async fn start(
    mut client: WatchClient,
    range: &KeyRange,
    revision: u64,
    previous: Previous,
    asks: Option<Duration>,
) -> Result<impl Stream<Item = Result<Observed, ClientError>> + Send + use<>, ClientError> {
    let mut options = WatchOptions::new()
        .with_range(range.end.clone())
        .with_start_revision(signed(revision.saturating_add(1)));
    if previous == Previous::Included {
        options = options.with_prev_key();
    }
    let watch = Watch {
        stream: client.watch(range.start.clone(), Some(options)).await?,
        known: revision,
        asks: asks.map(|period| tokio::time::interval_at(Instant::now() + period, period)),
    };
    Ok(stream::unfold(Some(watch), move |watch| async move {
        next(watch?).await
    }))
}

/// What is delivered next, and the watch unless it ended.
async fn next(mut watch: Watch) -> Option<(Result<Observed, ClientError>, Option<Watch>)> {
    loop {
        let reply = tokio::select! {
            reply = watch.stream.message() => reply,
            () = tick(&mut watch.asks) => match watch.stream.request_progress().await {
                Ok(()) => continue,
                Err(error) => Err(error),
            },
        };
        match reply {
            Ok(Some(reply)) if reply.canceled() => return Some((Err(canceled(&reply)), None)),
            // A store that was restarted empty sends no event until it reaches this revision again.
            Ok(Some(reply)) if reply.created() && revision_of(&reply) < watch.known => {
                let (known, found) = (watch.known, revision_of(&reply));
                return Some((Err(ClientError::RevisionRegressed { known, found }), None));
            }
            Ok(Some(reply)) if reply.created() => {}
            Ok(Some(reply)) if reply.events().is_empty() => {
                return Some((Ok(Observed::Progress(revision_of(&reply))), Some(watch)));
            }
            Ok(Some(reply)) => return Some((Ok(Observed::Events(events(&reply))), Some(watch))),
            Ok(None) => return None,
            Err(error) => return Some((Err(error.into()), None)),
        }
    }
}

async fn tick(asks: &mut Option<Interval>) {
    match asks {
        Some(asks) => drop(asks.tick().await),
        None => std::future::pending().await,
    }
}

fn revision_of(reply: &WatchResponse) -> u64 {
    let header = reply.header();
    unsigned(header.map_or(0, etcd_client::ResponseHeader::revision))
}

fn canceled(reply: &WatchResponse) -> ClientError {
    if reply.compact_revision() > 0 {
        return ClientError::Compacted {
            oldest: unsigned(reply.compact_revision()),
        };
    }
    ClientError::Refused(Arc::new(etcd_client::Error::WatchError(
        reply.cancel_reason().to_owned(),
    )))
}

fn events(reply: &WatchResponse) -> Vec<WatchEvent> {
    let one = |event: &etcd_client::Event| {
        let kv = event.kv()?;
        let put = event.event_type() == EventType::Put;
        Some(WatchEvent {
            path: kv.key().to_vec(),
            value: put.then(|| kv.value().to_vec()),
            previous: event.prev_kv().map(|previous| previous.value().to_vec()),
            revision: unsigned(kv.mod_revision()),
        })
    };
    reply.events().iter().filter_map(one).collect()
}
