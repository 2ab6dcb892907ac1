//! The stream of a snapshot: the blobs of a bbolt database as etcd keeps it, then their SHA-256.

use std::io::{self, Write};

use bytes::{Bytes, BytesMut};
use dormouse_snapshot::ExportError;
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::super::API_VERSION;
use crate::{Store, proto::etcdserverpb::SnapshotResponse};

/// Bytes of a blob, as etcd's.
const BLOB_BYTES: usize = 32 << 10;

/// Blobs that wait for a slow client.
const BLOBS_QUEUED_MAX: usize = 16;

type Blob = Result<SnapshotResponse, Status>;

/// Starts a snapshot of the store; it ends early if the stream is dropped.
pub(super) fn stream(store: Store) -> ReceiverStream<Blob> {
    let (blobs, stream) = channel(BLOBS_QUEUED_MAX);
    tokio::task::spawn_blocking(move || {
        let exported = store.export(|shape| Blobs::new(blobs.clone(), shape.bytes()));
        if let Err(error) = exported {
            // Fails if the client is gone, which then was the error.
            let _ = blobs.blocking_send(Err(failure(&error)));
        }
    });
    ReceiverStream::new(stream)
}

fn failure(error: &ExportError) -> Status {
    Status::internal(format!("etcdserver: failed to take a snapshot: {error}"))
}

/// An output that sends what it is given in blobs.
#[derive(Debug)]
struct Blobs {
    sender: Sender<Blob>,
    buffer: BytesMut,
    /// Bytes of the database that are not sent; the checksum does not count.
    remaining_bytes: u64,
}

impl Blobs {
    fn new(sender: Sender<Blob>, bytes: u64) -> Self {
        Self {
            sender,
            buffer: BytesMut::new(),
            remaining_bytes: bytes,
        }
    }

    fn send(&mut self, blob: Bytes) -> io::Result<()> {
        self.remaining_bytes = self.remaining_bytes.saturating_sub(blob.len() as u64);
        let response = SnapshotResponse {
            header: None,
            remaining_bytes: self.remaining_bytes,
            blob,
            version: API_VERSION.into(),
        };
        let sent = self.sender.blocking_send(Ok(response));
        sent.map_err(|_closed| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Blobs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        while self.buffer.len() >= BLOB_BYTES {
            let blob = self.buffer.split_to(BLOB_BYTES).freeze();
            self.send(blob)?;
        }
        Ok(bytes.len())
    }

    /// Sends a shorter blob: the last one of the database, and the checksum.
    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let blob = self.buffer.split().freeze();
        self.send(blob)
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;
    use crate::proto::etcdserverpb::PutRequest;

    async fn store() -> Store {
        let store = Store::new();
        for n in 0..100_u8 {
            let request = PutRequest {
                key: Bytes::from(vec![n]),
                value: Bytes::from(vec![n; 1_000]),
                ..PutRequest::default()
            };
            store.put(&request).await.unwrap();
        }
        store
    }

    #[tokio::test]
    async fn the_last_blob_is_the_checksum_and_nothing_remains_before_it() {
        let blobs: Vec<_> = stream(store().await).map(Result::unwrap).collect().await;
        let (checksum, database) = blobs.split_last().unwrap();
        assert_eq!((checksum.blob.len(), checksum.remaining_bytes), (32, 0));
        let bytes: usize = database.iter().map(|blob| blob.blob.len()).sum();
        let first = &database[0];
        assert_eq!(
            first.blob.len() as u64 + first.remaining_bytes,
            bytes as u64
        );
        assert_eq!(database.last().unwrap().remaining_bytes, 0);
        assert!(bytes > 100_000 && database.len() > 2);
    }

    #[tokio::test]
    async fn a_dropped_stream_ends_the_snapshot() {
        let (sender, stream) = channel(1);
        drop(stream);
        let store = store().await;
        let exported = tokio::task::spawn_blocking(move || {
            store
                .export(|shape| Blobs::new(sender, shape.bytes()))
                .map(drop)
        });
        assert!(matches!(
            exported.await.unwrap(),
            Err(ExportError::Database(_))
        ));
    }
}
