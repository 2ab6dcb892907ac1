//! Range reads in parts, each taken off the store before the next one is read: a stream of them holds
//! one part in memory, whatever the length of the range.

use super::Store;
use crate::{
    Error,
    keyspace::{RangeRead, Revision},
    proto::etcdserverpb::{RangeRequest, RangeResponse},
};

/// A range read in progress. It pins nothing: a client that stops reading costs no memory, and gets
/// the compacted error when it goes on after its revision was compacted.
#[derive(Debug)]
pub(crate) struct RangeParts {
    store: Store,
    /// `None` after the last part.
    read: Option<RangeRead>,
    /// The store's revision at the start.
    visible: Revision,
}

impl Store {
    /// Starts a read of a range in key order.
    pub(crate) fn range_parts(&self, request: &RangeRequest) -> Result<RangeParts, Error> {
        self.check_transport(request)?;
        self.shared.lost.check(request)?;
        self.shared.metrics.ranges.inc();
        let state = self.shared.state.read();
        let visible = self.shared.frontier.visible();
        let read = RangeRead::new(state.keyspace.at(visible), request)?;
        Ok(RangeParts {
            store: self.clone(),
            read: Some(read),
            visible,
        })
    }
}

impl RangeParts {
    /// The next part, in key order. The last one has the header, `more` and the count; `None` after
    /// it.
    pub(crate) async fn next(&mut self) -> Result<Option<RangeResponse>, Error> {
        while self.read.is_some() {
            let part = self.slice()?;
            if part.is_some() {
                return Ok(part);
            }
            // Other tasks run between two slices.
            tokio::task::yield_now().await;
        }
        Ok(None)
    }

    /// The pairs of one slice; `None` if it had none and is not the last.
    fn slice(&mut self) -> Result<Option<RangeResponse>, Error> {
        let Some(mut read) = self.read.take() else {
            return Ok(None);
        };
        let shared = &self.store.shared;
        let state = shared.state.read();
        let view = state.keyspace.at(shared.frontier.visible());
        view.read_revision(read.revision())?;
        if read.slice(&state.keyspace) {
            let mut last = RangeResponse::from(read.finish());
            last.header = Some(self.store.header(self.visible));
            return Ok(Some(last));
        }
        drop(state);
        let pairs = read.drain();
        self.read = Some(read);
        Ok((!pairs.is_empty()).then(|| RangeResponse {
            kvs: pairs.messages().collect(),
            ..RangeResponse::default()
        }))
    }
}
