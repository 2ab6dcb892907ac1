//! The bytes of long lists that are read and not yet sent: bounded, since a client that stops reading
//! keeps them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::Error;

/// The least limit of unsent lists, for small quotas.
pub(super) const UNSENT_BYTES_LEAST: u64 = 64 << 20;

/// The bytes of all long lists.
#[derive(Debug, Default)]
pub(crate) struct Unsent(AtomicU64);

/// The bytes of one list. They count until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    unsent: Arc<Unsent>,
    bytes: AtomicU64,
}

impl Unsent {
    /// A list without bytes.
    pub(super) fn list(self: &Arc<Self>) -> Held {
        Held {
            unsent: Arc::clone(self),
            bytes: AtomicU64::new(0),
        }
    }
}

impl Held {
    /// The list grows to this number of bytes. An error if the other lists have `max` bytes: one list
    /// alone may have any length.
    pub(super) fn grow(&self, bytes: u64, max: u64) -> Result<(), Error> {
        let added = bytes.saturating_sub(self.bytes.load(Ordering::Relaxed));
        let others = self.unsent.0.load(Ordering::Relaxed) + added;
        if others.saturating_sub(bytes) >= max {
            return Err(Error::TooManyRequests);
        }
        self.bytes.fetch_add(added, Ordering::Relaxed);
        self.unsent.0.fetch_add(added, Ordering::Relaxed);
        Ok(())
    }

    /// A part of the list is sent.
    pub(crate) fn sent(&self, bytes: usize) {
        let held = self.bytes.load(Ordering::Relaxed);
        let sent = held.min(bytes as u64);
        self.bytes.fetch_sub(sent, Ordering::Relaxed);
        self.unsent.0.fetch_sub(sent, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.unsent
            .0
            .fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        Limits, Store,
        proto::etcdserverpb::{PutRequest, RangeRequest},
    };

    #[tokio::test]
    async fn a_long_list_is_refused_while_unsent_ones_hold_the_limit() {
        let store = Store::with_limits(Limits {
            quota_bytes: UNSENT_BYTES_LEAST,
            ..Limits::default()
        });
        for key in 0..20_u8 {
            let put = PutRequest {
                key: Bytes::from(vec![key, 1]),
                value: Bytes::from(vec![0; 1 << 20]),
                ..PutRequest::default()
            };
            store.put(&put).await.unwrap();
        }
        let all = RangeRequest {
            key: Bytes::from_static(b"\0"),
            range_end: Bytes::from_static(b"\0"),
            ..RangeRequest::default()
        };
        let mut unsent = Vec::new();
        for _ in 0..4 {
            unsent.push(store.range_answer(&all).await.unwrap());
        }
        let refusal = store.range_answer(&all).await.unwrap_err();
        assert_eq!(refusal, Error::TooManyRequests);
        unsent.pop();
        store.range_answer(&all).await.unwrap();
    }

    #[test]
    fn lists_grow_until_the_others_have_the_limit() {
        let unsent = Arc::new(Unsent::default());
        let first = unsent.list();
        first.grow(500, 100).unwrap();
        let second = unsent.list();
        assert_eq!(second.grow(1, 100), Err(Error::TooManyRequests));
        first.sent(401);
        second.grow(300, 100).unwrap();
        assert_eq!(first.grow(600, 100), Err(Error::TooManyRequests));
        drop(second);
        first.grow(600, 100).unwrap();
        drop(first);
        assert_eq!(unsent.0.load(Ordering::Relaxed), 0);
    }
}
