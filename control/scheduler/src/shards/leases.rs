//! Access to Leases: those of our store, or of a Kubernetes API server.

use dormouse_cluster::client::{Guard, decode};
use dormouse_cluster::{Client, ClientError, Key, Object};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Error as ApiError};

/// The Leases of a namespace.
#[derive(Clone)]
pub struct Leases(Backend);

#[derive(Clone)]
enum Backend {
    Store {
        client: Client,
        namespace: String,
    },
    Kubernetes {
        api: Box<Api<Lease>>,
        namespace: String,
    },
}

/// An error about a Lease.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Another client has written the Lease meanwhile.
    #[error("the Lease {0} was written by another client meanwhile")]
    Conflict(String),
    /// The store failed.
    #[error("the store did not answer about the Lease {name}")]
    Store {
        /// The Lease.
        name: String,
        /// The reason.
        #[source]
        source: Box<ClientError>,
    },
    /// The API server failed.
    #[error("the API server did not answer about the Lease {name}")]
    Api {
        /// The Lease.
        name: String,
        /// The reason.
        #[source]
        source: Box<ApiError>,
    },
}

impl Leases {
    /// Those of a namespace in the store.
    pub fn in_store(client: Client, namespace: &str) -> Self {
        let namespace = namespace.to_owned();
        Self(Backend::Store { client, namespace })
    }

    /// Those of a namespace of a Kubernetes API server.
    pub fn in_kubernetes(client: kube::Client, namespace: &str) -> Self {
        Self(Backend::Kubernetes {
            api: Box::new(Api::namespaced(client, namespace)),
            namespace: namespace.to_owned(),
        })
    }

    /// The namespace.
    pub(crate) fn namespace(&self) -> &str {
        match &self.0 {
            Backend::Store { namespace, .. } | Backend::Kubernetes { namespace, .. } => namespace,
        }
    }

    /// A Lease, if it exists.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Lease>, LeaseError> {
        match &self.0 {
            Backend::Store { client, namespace } => {
                let found = client.get::<Lease>(&Key::new(&**namespace, name)).await;
                found.map_err(|error| of_store(name, error))
            }
            Backend::Kubernetes { api, .. } => {
                let found = api.get_opt(name).await;
                found.map_err(|error| of_api(name, error))
            }
        }
    }

    /// Creates a Lease.
    pub(crate) async fn create(&self, lease: &Lease) -> Result<(), LeaseError> {
        let name = name_of(lease);
        match &self.0 {
            Backend::Store { client, .. } => {
                let created = client.create(lease).await;
                created.map(drop).map_err(|error| of_store(name, error))
            }
            Backend::Kubernetes { api, .. } => {
                let created = api.create(&PostParams::default(), lease).await;
                created.map(drop).map_err(|error| of_api(name, error))
            }
        }
    }

    /// Replaces a Lease, if it is as it was read.
    pub(crate) async fn replace(&self, lease: &Lease) -> Result<(), LeaseError> {
        let name = name_of(lease);
        match &self.0 {
            Backend::Store { client, .. } => {
                let guard = Guard::at(lease.revision());
                let replaced = client.update(lease.clone(), &guard).await;
                replaced.map(drop).map_err(|error| of_store(name, error))
            }
            Backend::Kubernetes { api, .. } => {
                let replaced = api.replace(name, &PostParams::default(), lease).await;
                replaced.map(drop).map_err(|error| of_api(name, error))
            }
        }
    }

    /// Deletes a Lease, if it is as it was read.
    pub(crate) async fn delete(&self, lease: &Lease) -> Result<(), LeaseError> {
        let name = name_of(lease);
        match &self.0 {
            Backend::Store { client, namespace } => {
                let guard = Guard::at(lease.revision());
                let key = Key::new(&**namespace, name);
                let deleted = client.delete::<Lease>(&key, &guard).await;
                deleted.map(drop).map_err(|error| of_store(name, error))
            }
            Backend::Kubernetes { api, .. } => {
                let mut params = DeleteParams::default();
                let preconditions = params.preconditions.get_or_insert_default();
                preconditions
                    .resource_version
                    .clone_from(&lease.metadata.resource_version);
                let deleted = api.delete(name, &params).await;
                deleted.map(drop).map_err(|error| of_api(name, error))
            }
        }
    }

    /// The Leases whose names begin with `prefix` and that have a label.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        label: (&str, &str),
    ) -> Result<Vec<Lease>, LeaseError> {
        match &self.0 {
            Backend::Store { client, namespace } => {
                let path = Lease::path(&Key::new(&**namespace, prefix));
                let range = client.range(&path, 0).await;
                let (found, _) = range.map_err(|error| of_store(prefix, error))?;
                let decoded = found.iter().filter_map(|one| decode::<Lease>(one).ok());
                let is_labelled = |lease: &Lease| {
                    let labels = lease.metadata.labels.as_ref();
                    let value = labels.and_then(|labels| labels.get(label.0));
                    value.is_some_and(|value| value == label.1)
                };
                Ok(decoded.filter(is_labelled).collect())
            }
            Backend::Kubernetes { api, .. } => {
                let params = ListParams::default().labels(&format!("{}={}", label.0, label.1));
                let found = api.list(&params).await;
                let found = found.map_err(|error| of_api(prefix, error))?;
                Ok(found.items)
            }
        }
    }
}

fn name_of(lease: &Lease) -> &str {
    lease.metadata.name.as_deref().unwrap_or_default()
}

fn of_store(name: &str, error: ClientError) -> LeaseError {
    let name = name.to_owned();
    match error {
        ClientError::Conflict { .. }
        | ClientError::AlreadyExists { .. }
        | ClientError::NotFound { .. } => LeaseError::Conflict(name),
        other => {
            let source = Box::new(other);
            LeaseError::Store { name, source }
        }
    }
}

fn of_api(name: &str, error: ApiError) -> LeaseError {
    let name = name.to_owned();
    match error {
        ApiError::Api(status) if matches!(status.code, 404 | 409) => LeaseError::Conflict(name),
        other => {
            let source = Box::new(other);
            LeaseError::Api { name, source }
        }
    }
}
