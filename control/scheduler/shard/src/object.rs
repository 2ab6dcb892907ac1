//! A Kubernetes object that many messages share.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An object of the API.
#[derive(Debug, PartialEq)]
pub struct Object<T>(Arc<T>);

impl<T> Object<T> {
    /// Shares an object.
    pub fn new(object: T) -> Self {
        Self(Arc::new(object))
    }
}

impl<T> From<Arc<T>> for Object<T> {
    fn from(object: Arc<T>) -> Self {
        Self(object)
    }
}

impl<T> Clone for Object<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Serialize> Serialize for Object<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}
