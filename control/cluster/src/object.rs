//! Which kinds the cluster is made of, and the store key each object lives under.

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use serde::{Serialize, de::DeserializeOwned};

use crate::{App, Key};

/// A kind that lives in the store, as JSON, under Kubernetes' own keys.
///
/// `metadata.resourceVersion` is never stored: it is the key's `mod_revision`, filled on read.
pub trait Object:
    kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Send + Sync + 'static
{
    /// Start of every key of this kind; ends with a slash.
    const PREFIX: &'static str;
    /// Whether objects of this kind live in a namespace.
    const NAMESPACED: bool;
    /// The kind's name in a URL path.
    const PLURAL: &'static str;

    /// This object's namespace and name; empty where unset.
    fn key(&self) -> Key {
        let meta = self.meta();
        let namespace = if Self::NAMESPACED {
            meta.namespace.clone()
        } else {
            None
        };
        Key {
            namespace: namespace.unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }

    /// The store's revision at which this object was last written; 0 when it was not read from the store.
    fn revision(&self) -> u64 {
        self.meta()
            .resource_version
            .as_deref()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }

    /// The store key of the object that `key` names.
    fn path(key: &Key) -> String {
        if Self::NAMESPACED {
            return format!("{}{}/{}", Self::PREFIX, key.namespace, key.name);
        }
        format!("{}{}", Self::PREFIX, key.name)
    }

    /// Reads a store key back; `None` when it is not one of this kind's.
    fn parse_path(path: &[u8]) -> Option<Key> {
        let rest = std::str::from_utf8(path).ok()?.strip_prefix(Self::PREFIX)?;
        let key = match rest.split_once('/') {
            Some((namespace, name)) if Self::NAMESPACED => Key::new(namespace, name),
            None if !Self::NAMESPACED => Key::global(rest),
            _ => return None,
        };
        (!key.name.is_empty() && !key.name.contains('/')).then_some(key)
    }
}

impl Object for App {
    const PREFIX: &'static str = "/registry/dormouse.dev/apps/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "apps";
}

impl Object for Pod {
    const PREFIX: &'static str = "/registry/pods/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "pods";
}

impl Object for Node {
    /// Kubernetes still keeps nodes under their first name.
    const PREFIX: &'static str = "/registry/minions/";
    const NAMESPACED: bool = false;
    const PLURAL: &'static str = "nodes";
}

impl Object for Event {
    const PREFIX: &'static str = "/registry/events/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "events";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_back_as_the_key_it_was_made_from() {
        let key = Key::new("shop", "web");
        assert_eq!(App::path(&key), "/registry/dormouse.dev/apps/shop/web");
        assert_eq!(App::parse_path(App::path(&key).as_bytes()), Some(key));
        assert_eq!(
            Node::parse_path(b"/registry/minions/n1"),
            Some(Key::global("n1"))
        );
    }

    #[test]
    fn a_foreign_path_is_no_key() {
        for path in [
            "/registry/pods/a",
            "/registry/pods/a/",
            "/registry/pods/a/b/c",
            "/x/a/b",
        ] {
            assert_eq!(Pod::parse_path(path.as_bytes()), None, "{path}");
        }
    }
}
