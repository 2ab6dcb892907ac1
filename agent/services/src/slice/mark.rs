//! A digest of a slice, which detects changes without storing the object.

use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::discovery::v1::EndpointSlice;

/// A digest of one version of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u64);

impl Mark {
    /// Versions with the same digest are equal. For stored objects it is the resource version, else it covers all fields.
    pub fn of(slice: &EndpointSlice) -> Self {
        let mut digest = Digest(DefaultHasher::new());
        let meta = &slice.metadata;
        match (&meta.uid, &meta.resource_version) {
            (Some(uid), Some(version)) => (uid, version).hash(&mut digest.0),
            // Writing into a digest cannot fail.
            _ => drop(write!(digest, "{slice:?}")),
        }
        Self(digest.0.finish())
    }
}

struct Digest(DefaultHasher);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
