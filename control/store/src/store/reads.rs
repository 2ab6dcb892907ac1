//! Reads of the store: at the visible revision, in slices of the lock, so that a long list delays no
//! write.

use super::{Store, pins::Pin};
use crate::{
    Error,
    keyspace::{KeyspaceHash, RangeRead, Revision},
    proto::etcdserverpb::{RangeRequest, RangeResponse, TxnRequest, TxnResponse},
    txn,
};

impl Store {
    /// Serves a range request. Cancel safe.
    pub async fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        self.check_transport(request)?;
        txn::check_range(request)?;
        self.check_lost(request)?;
        self.shared.metrics.ranges.inc();
        let (mut read, visible, pin) = self.start_read(request)?;
        if pin.is_some() {
            self.finish_read(&mut read).await;
        }
        let mut response = RangeResponse::from(read.finish());
        response.header = Some(self.header(visible));
        Ok(response)
    }

    /// The first slice of a read, and the pin of its revision if there are more slices.
    fn start_read(
        &self,
        request: &RangeRequest,
    ) -> Result<(RangeRead, Revision, Option<Pin<'_>>), Error> {
        let state = self.shared.state.read();
        let visible = self.shared.frontier.visible();
        let mut read = RangeRead::new(state.keyspace.at(visible), request)?;
        let done = read.slice(&state.keyspace);
        let pin = (!done).then(|| self.shared.pins.pin(read.revision()));
        Ok((read, visible, pin))
    }

    async fn finish_read(&self, read: &mut RangeRead) {
        loop {
            // Other tasks run between two slices.
            tokio::task::yield_now().await;
            if read.slice(&self.shared.state.read().keyspace) {
                return;
            }
        }
    }

    /// The hash of the keyspace up to a revision (0: the current one), and the visible revision.
    pub fn hash(&self, revision: Revision) -> Result<(KeyspaceHash, Revision), Error> {
        let state = self.shared.state.read();
        let hash = state.keyspace.hash(revision)?;
        Ok((hash, self.shared.frontier.visible()))
    }

    /// Runs a transaction that only reads.
    pub(super) fn read_txn(&self, request: &TxnRequest) -> Result<TxnResponse, Error> {
        let state = self.shared.state.read();
        let visible = self.shared.frontier.visible();
        let view = state.keyspace.at(visible);
        let mut response = txn::read_only(view, &state.leases, request)?;
        response.header = Some(self.header(visible));
        Ok(response)
    }
}
