//! Reads of the store: at the visible revision, in slices of the lock, so that a long list delays no
//! write.

use super::{Held, Store, pins::Pin};
use crate::{
    Error,
    keyspace::{HashRead, KeyspaceHash, RangeRead, RangeResult, Revision},
    proto::etcdserverpb::{RangeRequest, RangeResponse, ResponseHeader, TxnRequest, TxnResponse},
    txn::{self, Beside, ReadTxn},
};

/// The answer to a range request, with its pairs as they were read.
#[derive(Debug)]
pub(crate) struct RangeAnswer {
    /// The header of the response.
    pub(crate) header: ResponseHeader,
    /// Its other fields.
    pub(crate) found: RangeResult,
    /// The bytes of a long list, until they are sent.
    pub(crate) held: Option<Held>,
}

impl From<RangeAnswer> for RangeResponse {
    fn from(answer: RangeAnswer) -> Self {
        Self {
            header: Some(answer.header),
            ..answer.found.into()
        }
    }
}

impl Store {
    /// Serves a range request. Cancel safe.
    pub async fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        Ok(self.range_answer(request).await?.into())
    }

    /// As [`Store::range`].
    pub(crate) async fn range_answer(&self, request: &RangeRequest) -> Result<RangeAnswer, Error> {
        self.check_transport(request)?;
        txn::check_range(request)?;
        self.shared.lost.check(request)?;
        self.shared.metrics.ranges.inc();
        let (mut read, visible, pin) = self.start_read(request)?;
        let held = match pin {
            Some(_) => Some(self.finish_read(&mut read).await?),
            None => None,
        };
        Ok(RangeAnswer {
            header: self.header(visible),
            found: read.finish(),
            held,
        })
    }

    /// The first slice of a read, and the pin of its revision if there are more slices.
    fn start_read(
        &self,
        request: &RangeRequest,
    ) -> Result<(RangeRead, Revision, Option<Pin<'_>>), Error> {
        let state = self.shared.state.read();
        let visible = self.revision();
        let mut read = RangeRead::new(state.keyspace.at(visible), request)?;
        let done = read.slice(&state.keyspace);
        let pin = (!done).then(|| self.shared.pins.pin(read.revision()));
        Ok((read, visible, pin))
    }

    /// Reads the further slices; returns the bytes that the list holds.
    async fn finish_read(&self, read: &mut RangeRead) -> Result<Held, Error> {
        let held = self.shared.unsent.list();
        let max = self.shared.limits.unsent_bytes_max();
        loop {
            held.grow(read.bytes(), max)?;
            // Other tasks run between two slices.
            tokio::task::yield_now().await;
            if read.slice(&self.shared.state.read().keyspace) {
                held.grow(read.bytes(), max)?;
                return Ok(held);
            }
        }
    }

    /// The hash of the keyspace up to a revision (0: the visible one), and the visible revision.
    /// Cancel safe.
    pub async fn hash(&self, revision: Revision) -> Result<(KeyspaceHash, Revision), Error> {
        let (mut read, visible, _pin) = self.start_hash(revision);
        loop {
            let hash = read.slice(self.shared.state.read().keyspace.at(visible));
            if let Some(hash) = hash {
                return hash.map(|hash| (hash, visible));
            }
            tokio::task::yield_now().await;
        }
    }

    /// The hashes of past compactions up to the one at a compacted revision. Blocks for slices of the
    /// lock.
    pub(super) fn compaction_hashes(&self, revision: Revision) -> Vec<KeyspaceHash> {
        let (mut read, visible, _pin) = self.start_hash(revision);
        while read
            .slice(self.shared.state.read().keyspace.at(visible))
            .is_none()
        {}
        read.compactions(revision)
    }

    fn start_hash(&self, revision: Revision) -> (HashRead, Revision, Pin<'_>) {
        let state = self.shared.state.read();
        let visible = self.revision();
        let read = HashRead::new(state.keyspace.at(visible), revision);
        let pin = self.shared.pins.pin(read.pinned(&state.keyspace));
        (read, visible, pin)
    }

    /// Runs a transaction that only reads. Cancel safe.
    pub(super) async fn read_txn(&self, request: &TxnRequest) -> Result<TxnResponse, Error> {
        let (mut read, visible, pin) = self.start_read_txn(request)?;
        if pin.is_some() {
            loop {
                tokio::task::yield_now().await;
                if read.slice(&self.shared.state.read().keyspace) {
                    break;
                }
            }
        }
        let mut response = read.finish();
        response.header = Some(self.header(visible));
        Ok(response)
    }

    /// The first slice of a transaction, and the pin of its oldest revision if there are more.
    fn start_read_txn<'a>(
        &self,
        request: &'a TxnRequest,
    ) -> Result<(ReadTxn<'a>, Revision, Option<Pin<'_>>), Error> {
        let state = self.shared.state.read();
        let visible = self.revision();
        let view = state.keyspace.at(visible);
        let beside = Beside {
            leases: &state.leases,
            lost: &self.shared.lost,
        };
        let mut read = ReadTxn::new(view, beside, request)?;
        read.slice(&state.keyspace);
        let pin = read.pinned().map(|oldest| self.shared.pins.pin(oldest));
        Ok((read, visible, pin))
    }
}
