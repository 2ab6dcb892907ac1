//! Objects as the values of keys.

use etcd_client::KeyValue;
use serde::Serialize;

use super::{ClientError, unsigned};
use crate::Object;

/// Room for the JSON of a usual object, which is not copied then while it is written.
const JSON_BYTES: usize = 2_048;

/// Decodes the object in a key's value; sets its `resourceVersion`.
pub fn decode<K: Object>(kv: &KeyValue) -> Result<K, ClientError> {
    decode_bytes(kv.key(), kv.value(), unsigned(kv.mod_revision()))
}

/// Encodes an object for the store, without its `resourceVersion`.
pub fn encode<K: Object>(object: &K) -> Result<Vec<u8>, ClientError> {
    let encoded = if object.meta().resource_version.is_some() {
        let mut stored = object.clone();
        stored.meta_mut().resource_version = None;
        json(&stored)
    } else {
        json(object)
    };
    encoded.map_err(|source| ClientError::Malformed {
        path: K::path(&object.key()),
        source,
    })
}

fn json(object: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::with_capacity(JSON_BYTES);
    serde_json::to_writer(&mut bytes, object)?;
    Ok(bytes)
}

/// Decodes the object at a key, written at `revision`.
pub fn decode_bytes<K: Object>(path: &[u8], value: &[u8], revision: u64) -> Result<K, ClientError> {
    let malformed = |source| ClientError::Malformed {
        path: String::from_utf8_lossy(path).into_owned(),
        source,
    };
    let object: K = serde_json::from_slice(value).map_err(malformed)?;
    Ok(with_revision(object, revision))
}

pub(super) fn decode_or_warn<K: Object>(kv: &KeyValue) -> Option<K> {
    decode(kv)
        .inspect_err(|error| tracing::warn!(error = %chain(error), "skipped a malformed object"))
        .ok()
}

/// An error with its sources, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

pub(super) fn with_revision<K: Object>(mut object: K, revision: u64) -> K {
    object.meta_mut().resource_version = Some(revision.to_string());
    object
}
