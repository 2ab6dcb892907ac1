//! The kinds of objects in the store, and the store key of each object.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Namespace, Node, Pod, Service},
    discovery::v1::EndpointSlice,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{App, Key, Revision};

/// A kind whose objects are in the store, as JSON, under Kubernetes' keys.
///
/// `metadata.resourceVersion` is not stored: it is the key's `mod_revision`, set on read.
pub trait Object:
    kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Send + Sync + 'static
{
    /// Prefix of the keys of this kind; ends with a slash.
    const PREFIX: &'static str;
    /// Whether the kind is namespaced.
    const NAMESPACED: bool;
    /// The resource name in URLs.
    const PLURAL: &'static str;

    /// The object's namespace and name; empty where not set.
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

    /// The object's `mod_revision` in the store; 0 if it was not read from the store.
    fn revision(&self) -> u64 {
        self.meta()
            .resource_version
            .as_deref()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }

    /// The store key of the object with `key`.
    fn path(key: &Key) -> String {
        if Self::NAMESPACED {
            return format!("{}{}/{}", Self::PREFIX, key.namespace, key.name);
        }
        format!("{}{}", Self::PREFIX, key.name)
    }

    /// Parses a store key; `None` if it is not a key of this kind.
    fn parse_path(path: &[u8]) -> Option<Key> {
        let rest = std::str::from_utf8(path).ok()?.strip_prefix(Self::PREFIX)?;
        let key = match rest.split_once('/') {
            Some((namespace, name)) if Self::NAMESPACED => Key::new(namespace, name),
            None if !Self::NAMESPACED => Key::cluster_scoped(rest),
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

impl Object for Revision {
    const PREFIX: &'static str = "/registry/dormouse.dev/revisions/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "revisions";
}

impl Object for Pod {
    const PREFIX: &'static str = "/registry/pods/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "pods";
}

impl Object for Node {
    /// The key prefix of nodes in Kubernetes, from their first name.
    const PREFIX: &'static str = "/registry/minions/";
    const NAMESPACED: bool = false;
    const PLURAL: &'static str = "nodes";
}

impl Object for Namespace {
    const PREFIX: &'static str = "/registry/namespaces/";
    const NAMESPACED: bool = false;
    const PLURAL: &'static str = "namespaces";
}

impl Object for Service {
    /// The key prefix of Services in Kubernetes, which once kept their endpoints beside them.
    const PREFIX: &'static str = "/registry/services/specs/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "services";
}

impl Object for EndpointSlice {
    const PREFIX: &'static str = "/registry/endpointslices/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "endpointslices";
}

impl Object for Event {
    const PREFIX: &'static str = "/registry/events/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "events";
}

impl Object for ConfigMap {
    const PREFIX: &'static str = "/registry/configmaps/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "configmaps";
}

impl Object for Role {
    const PREFIX: &'static str = "/registry/roles/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "roles";
}

impl Object for RoleBinding {
    const PREFIX: &'static str = "/registry/rolebindings/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "rolebindings";
}

impl Object for ClusterRole {
    const PREFIX: &'static str = "/registry/clusterroles/";
    const NAMESPACED: bool = false;
    const PLURAL: &'static str = "clusterroles";
}

impl Object for ClusterRoleBinding {
    const PREFIX: &'static str = "/registry/clusterrolebindings/";
    const NAMESPACED: bool = false;
    const PLURAL: &'static str = "clusterrolebindings";
}

impl Object for Lease {
    const PREFIX: &'static str = "/registry/leases/";
    const NAMESPACED: bool = true;
    const PLURAL: &'static str = "leases";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_key_is_parsed_back_to_the_key() {
        let key = Key::new("shop", "web");
        assert_eq!(App::path(&key), "/registry/dormouse.dev/apps/shop/web");
        assert_eq!(App::parse_path(App::path(&key).as_bytes()), Some(key));
        assert_eq!(
            Node::parse_path(b"/registry/minions/n1"),
            Some(Key::cluster_scoped("n1"))
        );
    }

    #[test]
    fn the_path_of_another_kind_is_not_parsed() {
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
