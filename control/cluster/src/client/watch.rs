//! Untyped watches of keys.

use std::sync::Arc;

use etcd_client::{EventType, WatchClient, WatchOptions, WatchResponse, WatchStream};
use futures::{Stream, stream};

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

/// Starts a watch of the keys of `range` after `revision`.
pub(super) async fn start(
    mut client: WatchClient,
    range: &KeyRange,
    revision: u64,
    previous: Previous,
) -> Result<impl Stream<Item = Result<Vec<WatchEvent>, ClientError>> + Send + use<>, ClientError> {
    let mut options = WatchOptions::new()
        .with_range(range.end.clone())
        .with_start_revision(signed(revision.saturating_add(1)));
    if previous == Previous::Included {
        options = options.with_prev_key();
    }
    let watch = client.watch(range.start.clone(), Some(options)).await?;
    Ok(stream::unfold(Some(watch), move |watch| async move {
        next(watch?, revision).await
    }))
}

/// The next batch, and the stream unless it ended. `known` is the revision before the watch's first.
async fn next(
    mut watch: WatchStream,
    known: u64,
) -> Option<(Result<Vec<WatchEvent>, ClientError>, Option<WatchStream>)> {
    loop {
        match watch.message().await {
            Ok(Some(reply)) if reply.canceled() => return Some((Err(canceled(&reply)), None)),
            // A store that was restarted empty sends no event until it reaches this revision again.
            Ok(Some(reply)) if reply.created() && revision_of(&reply) < known => {
                let found = revision_of(&reply);
                return Some((Err(ClientError::RevisionRegressed { known, found }), None));
            }
            Ok(Some(reply)) if reply.events().is_empty() => {}
            Ok(Some(reply)) => return Some((Ok(events(&reply)), Some(watch))),
            Ok(None) => return None,
            Err(error) => return Some((Err(error.into()), None)),
        }
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
