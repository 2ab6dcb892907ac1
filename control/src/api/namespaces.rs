//! Namespaces as objects: two exist from the start, and each other one comes into being with its first object at the latest, as with
//! Kubernetes' admission plugin NamespaceAutoProvision.

use std::collections::HashSet;

use dormouse_cluster::client::{KeyRange, prefix_of};
use dormouse_cluster::{App, ClientError, Key, Revision};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Pod, Service},
    discovery::v1::EndpointSlice,
    rbac::v1::{Role, RoleBinding},
};
use parking_lot::Mutex;
use serde_json::json;
use tracing::warn;

use super::kind::Rules;
use super::write::draft;
use super::{Api, Failure, Kind};

/// The namespaces that exist from the start, and cannot be deleted.
pub(super) const PERMANENT: [&str; 2] = ["default", "kube-system"];

/// Creates the namespaces that exist from the start. One that could not be created comes into being with its first object.
pub(super) async fn provide_permanent(api: &Api) {
    for name in PERMANENT {
        if let Err(failure) = api.namespaces.provide(api, name).await {
            warn!(
                name,
                reason = failure.message(),
                "a namespace could not be created; its first object creates it"
            );
        }
    }
}

/// The namespaces that are known to exist.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    known: Mutex<HashSet<String>>,
}

impl Namespaces {
    /// Creates a namespace, unless it exists.
    pub(super) async fn provide(&self, api: &Api, name: &str) -> Result<(), Failure> {
        if self.known.lock().contains(name) {
            return Ok(());
        }
        let key = Key::cluster_scoped(name);
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let object: Namespace = draft::created(object, &key, &Rules::of(api))?;
        match api.client.create(&object).await {
            Ok(_) | Err(ClientError::AlreadyExists { .. }) => {
                self.known.lock().insert(name.to_owned());
                Ok(())
            }
            Err(error) => Err(Failure::of_client::<Namespace>(&error, &key)),
        }
    }

    /// A namespace was deleted: its next object creates it again.
    pub(super) fn forget(&self, name: &str) {
        self.known.lock().remove(name);
    }

    /// Fails unless a namespace may be deleted, and has no objects but events, which expire.
    pub(super) async fn check_removal(&self, api: &Api, name: &str) -> Result<(), Failure> {
        if PERMANENT.contains(&name) {
            return Err(Failure::forbidden::<Namespace>(
                name,
                "this namespace may not be deleted",
            ));
        }
        let has = [
            has_objects::<App>(api, name).await?,
            has_objects::<Revision>(api, name).await?,
            has_objects::<Pod>(api, name).await?,
            has_objects::<Service>(api, name).await?,
            has_objects::<EndpointSlice>(api, name).await?,
            has_objects::<ConfigMap>(api, name).await?,
            has_objects::<RoleBinding>(api, name).await?,
            has_objects::<Role>(api, name).await?,
        ];
        let kinds: Vec<_> = has.into_iter().flatten().collect();
        if kinds.is_empty() {
            return Ok(());
        }
        let message = format!("it has objects: delete them first ({})", kinds.join(", "));
        Err(Failure::forbidden::<Namespace>(name, &message))
    }
}

/// The plural name of a kind of which a namespace has objects.
async fn has_objects<K: Kind>(api: &Api, namespace: &str) -> Result<Option<&'static str>, Failure> {
    let range = KeyRange::of_prefix(&prefix_of::<K>(Some(namespace)));
    let page = api.client.page(&range, 0).await;
    let page =
        page.map_err(|error| Failure::of_client::<K>(&error, &Key::cluster_scoped(namespace)))?;
    Ok((!page.kvs.is_empty()).then_some(K::PLURAL))
}
