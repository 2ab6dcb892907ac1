//! The blobs of a snapshot stream: all keys at one revision, then the SHA-256 of the blobs.
//!
//! The snapshot is a sequence of length-delimited `mvccpb.KeyValue` messages in key order.

use std::vec;

use bytes::{Bytes, BytesMut};
use prost::Message;
use ring::digest::{Context, SHA256};

use crate::{
    Error, Store,
    proto::etcdserverpb::{RangeRequest, SnapshotResponse},
    wire::KeyValue,
};

/// A blob with this many bytes takes no further key.
const BLOB_BYTES: usize = 32 << 10;

/// All keys, in order, at the current revision.
pub(super) async fn keys(store: &Store) -> Result<Vec<KeyValue>, Error> {
    let zero = Bytes::from_static(b"\0");
    let everything = RangeRequest {
        key: zero.clone(),
        range_end: zero,
        ..RangeRequest::default()
    };
    Ok(store.range(&everything).await?.kvs)
}

/// The responses of a snapshot stream.
pub(super) struct Blobs {
    kvs: vec::IntoIter<KeyValue>,
    remaining_bytes: u64,
    /// Taken when the last blob is made.
    digest: Option<Context>,
    version: &'static str,
}

impl Blobs {
    pub(super) fn new(kvs: Vec<KeyValue>, version: &'static str) -> Self {
        let bytes = kvs.iter().map(delimited_len).sum::<usize>();
        Self {
            kvs: kvs.into_iter(),
            remaining_bytes: bytes as u64,
            digest: Some(Context::new(&SHA256)),
            version,
        }
    }

    fn response(&self, blob: Bytes) -> SnapshotResponse {
        SnapshotResponse {
            header: None,
            remaining_bytes: self.remaining_bytes,
            blob,
            version: self.version.into(),
        }
    }
}

fn delimited_len(kv: &KeyValue) -> usize {
    let len = kv.encoded_len();
    prost::length_delimiter_len(len) + len
}

impl Iterator for Blobs {
    type Item = SnapshotResponse;

    fn next(&mut self) -> Option<SnapshotResponse> {
        let mut blob = BytesMut::new();
        while blob.len() < BLOB_BYTES
            && let Some(kv) = self.kvs.next()
        {
            blob.extend_from_slice(&kv.encode_length_delimited_to_vec());
        }
        if blob.is_empty() {
            let digest = self.digest.take()?.finish();
            return Some(self.response(Bytes::copy_from_slice(digest.as_ref())));
        }
        self.digest.as_mut()?.update(&blob);
        self.remaining_bytes -= blob.len() as u64;
        Some(self.response(blob.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_blob_is_the_digest_of_the_others_and_nothing_remains() {
        let kvs: Vec<KeyValue> = (0..100_u8)
            .map(|n| KeyValue::encode(&[n; 1_000], &[]))
            .collect();
        let responses: Vec<_> = Blobs::new(kvs.clone(), "3.6.0").collect();
        let (last, blobs) = responses.split_last().unwrap();
        assert!(blobs.len() > 2);
        let whole: Vec<u8> = blobs.iter().flat_map(|blob| blob.blob.to_vec()).collect();
        let digest = ring::digest::digest(&SHA256, &whole);
        assert_eq!(last.blob, digest.as_ref());
        assert_eq!(last.remaining_bytes, 0);
        assert_eq!(blobs.last().unwrap().remaining_bytes, 0);
        let mut rest = whole.as_slice();
        for kv in kvs {
            assert_eq!(KeyValue::decode_length_delimited(&mut rest).unwrap(), kv);
        }
        assert!(rest.is_empty());
    }
}
