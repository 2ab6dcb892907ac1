//! The queue below a name: a client's place in it, and the wait for the turn of its key.

use bytes::{BufMut, Bytes, BytesMut};
use tokio::runtime::Handle;
use tonic::Status;

use super::{
    client::{Client, delete, first, get, put, read, revision},
    follow::Follow,
};
use crate::{
    keyspace::{KeyRange, Revision},
    lease::LeaseId,
    proto::etcdserverpb::{
        RangeRequest, ResponseHeader, TxnResponse,
        range_request::{SortOrder, SortTarget},
        response_op::Response,
    },
    wire::{Event, KeyValue},
};

/// The keys of one name.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    prefix: Bytes,
}

impl Queue {
    pub(super) fn new(name: &[u8]) -> Self {
        let mut prefix = BytesMut::from(name);
        prefix.put_u8(b'/');
        Self {
            prefix: prefix.freeze(),
        }
    }

    /// The key of a lease: its number is hexadecimal, as etcd writes it.
    fn key(&self, lease: LeaseId) -> Bytes {
        let sign = if lease < 0 { "-" } else { "" };
        let number = format!("{sign}{:x}", lease.unsigned_abs());
        [self.prefix.as_ref(), number.as_bytes()].concat().into()
    }

    /// The end of the range of all keys; `/` is followed by `0`.
    fn end(&self) -> Bytes {
        let mut end = BytesMut::from(self.prefix.as_ref());
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        end.freeze()
    }

    /// The range of all keys.
    pub(super) fn range(&self) -> KeyRange {
        KeyRange::Span(self.prefix.clone(), self.end())
    }

    /// Reads the oldest key.
    pub(super) fn oldest(&self) -> RangeRequest {
        self.one(SortOrder::Ascend)
    }

    /// Reads the newest key that was created before a revision.
    fn newest_before(&self, created: Revision) -> RangeRequest {
        RangeRequest {
            max_create_revision: created - 1,
            ..self.one(SortOrder::Descend)
        }
    }

    fn one(&self, order: SortOrder) -> RangeRequest {
        RangeRequest {
            key: self.prefix.clone(),
            range_end: self.end(),
            limit: 1,
            sort_order: order.into(),
            sort_target: SortTarget::Create.into(),
            ..RangeRequest::default()
        }
    }
}

/// A client's place in a queue. Its key is deleted with it, unless it is [kept](Place::keep): a
/// client that gives up while it waits leaves no key.
#[derive(Debug)]
pub(super) struct Place {
    client: Client,
    queue: Queue,
    pub(super) key: Bytes,
    /// Revision at which the key was created.
    pub(super) created: Revision,
    kept: bool,
}

/// The transaction that entered a queue.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) header: Option<ResponseHeader>,
    /// The key, if the lease had it in the queue before.
    pub(super) before: Option<KeyValue>,
}

impl Place {
    /// Creates the key of a lease, unless it exists. Reads the oldest key, too, so that a client that
    /// may not read the queue does not enter it.
    pub(super) async fn enter(
        client: Client,
        queue: Queue,
        lease: LeaseId,
        value: Bytes,
    ) -> Result<(Self, Entered), Status> {
        let key = queue.key(lease);
        let success = vec![put(key.clone(), value, lease), read(queue.oldest())];
        let failure = vec![read(get(key.clone())), read(queue.oldest())];
        let absent = (key.clone(), 0);
        let response = client.if_created_at(absent, success, failure).await?;
        let entered = Entered {
            header: response.header,
            before: read_first(&response),
        };
        let now = entered.header.as_ref().map_or(0, |header| header.revision);
        let before = entered.before.as_ref();
        let place = Self {
            created: before.map_or(now, |kv| kv.fields().create_revision),
            client,
            queue,
            key,
            kept: false,
        };
        Ok((place, entered))
    }

    /// Returns when no key in the queue is older; whether there was one before.
    pub(super) async fn turn(&self) -> Result<bool, Status> {
        let mut waited = false;
        loop {
            let older = self.queue.newest_before(self.created);
            let response = self.client.range(older).await?;
            let start = revision(&response) + 1;
            let Some(older) = first(response) else {
                return Ok(waited);
            };
            waited = true;
            let key = Bytes::copy_from_slice(older.fields().key);
            self.deletion(key, start).await?;
        }
    }

    /// Returns when a key is deleted.
    async fn deletion(&self, key: Bytes, start: Revision) -> Result<(), Status> {
        let mut follow = Follow::new(&self.client, KeyRange::One(key), start)?;
        loop {
            if follow.next().await?.iter().any(Event::is_delete) {
                return Ok(());
            }
        }
    }

    /// Keeps the key in the queue.
    pub(super) fn keep(mut self) -> Bytes {
        self.kept = true;
        self.key.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let (client, key) = (self.client.clone(), self.key.clone());
        let own = (key.clone(), self.created);
        // Without a runtime the process ends, and the key with its lease.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let left = client.if_created_at(own, vec![delete(key)], Vec::new());
                // A key that cannot be deleted is deleted with its lease.
                drop(left.await);
            });
        }
    }
}

/// The first pair of the first response, if that is one of a range.
fn read_first(response: &TxnResponse) -> Option<KeyValue> {
    match response.responses.first()?.response.as_ref()? {
        Response::ResponseRange(range) => range.kvs.first().cloned(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_lease_is_hexadecimal_below_the_name() {
        let queue = Queue::new(b"m");
        assert_eq!(queue.key(16), "m/10");
        assert_eq!(queue.key(-16), "m/-10");
        assert_eq!(queue.key(LeaseId::MIN), "m/-8000000000000000");
        assert!(queue.range().contains(&queue.key(LeaseId::MAX)));
        assert!(!queue.range().contains(b"m0"));
        assert_eq!(Queue::new(b"").key(255), "/ff");
    }
}
