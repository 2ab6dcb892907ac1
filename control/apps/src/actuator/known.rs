//! Writes of objects as they were last read, without another read.

use dormouse_cluster::client::Guard;
use dormouse_cluster::{Client, ClientError, Object};

/// Changes an object as it was last read; returns it as written. It is read again if it has changed since, and if `write`,
/// which returns whether it changed the object, finds nothing to change: the store may have a newer state, in which there is.
pub(super) async fn write_known<K: Object>(
    client: &Client,
    known: &K,
    write: impl Fn(&mut K) -> bool + Send,
) -> Result<K, ClientError> {
    let written = match changed(known, &write) {
        Some(object) => client.update(object, &Guard::at(known.revision())).await,
        None => Err(ClientError::Conflict {
            path: K::path(&known.key()),
        }),
    };
    match written {
        Err(ClientError::Conflict { .. }) => Box::pin(client.modify(&known.key(), write)).await,
        written => written,
    }
}

/// A changed copy; none if there is nothing to change.
fn changed<K: Object>(known: &K, write: impl Fn(&mut K) -> bool) -> Option<K> {
    let mut object = known.clone();
    write(&mut object).then_some(object)
}

#[cfg(test)]
mod tests {
    use dormouse_cluster::channel;
    use dormouse_store::Store;
    use dormouse_store::server::{Options, Server};
    use k8s_openapi::api::core::v1::{Pod, PodStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// A client of an empty store in this process.
    async fn client() -> Client {
        let none = Vec::<TcpListener>::new();
        let shutdown = CancellationToken::new();
        let server = Server::new(none, Store::new(), Options::default(), shutdown).unwrap();
        let services = channel::in_process(server.in_process());
        Client::over(services).await.unwrap()
    }

    fn pod() -> Pod {
        Pod {
            metadata: ObjectMeta {
                name: Some("web-1".to_owned()),
                namespace: Some("shop".to_owned()),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        }
    }

    /// Sets the phase of a pod; returns whether it was another one.
    fn phase(phase: &'static str) -> impl Fn(&mut Pod) -> bool {
        move |pod| {
            let status = PodStatus {
                phase: Some(phase.to_owned()),
                ..PodStatus::default()
            };
            pod.status.replace(status.clone()) != Some(status)
        }
    }

    async fn stored(client: &Client) -> Option<String> {
        let found: Pod = client.get(&pod().key()).await.unwrap().unwrap();
        found.status?.phase
    }

    #[tokio::test]
    async fn an_object_that_was_changed_since_is_read_again() {
        let client = client().await;
        let mut first = pod();
        phase("Running")(&mut first);
        let known = client.create(&first).await.unwrap();
        write_known(&client, &known, phase("Failed")).await.unwrap();
        assert_eq!(stored(&client).await.as_deref(), Some("Failed"));
        let label = |pod: &mut Pod| {
            let labels = pod.metadata.labels.get_or_insert_default();
            labels.insert("a".to_owned(), "b".to_owned()).is_none()
        };
        write_known(&client, &known, label).await.unwrap();
        assert_eq!(stored(&client).await.as_deref(), Some("Failed"));
    }

    #[tokio::test]
    async fn a_state_that_the_known_object_has_is_written_over_a_newer_one() {
        let client = client().await;
        let mut first = pod();
        phase("Running")(&mut first);
        let known = client.create(&first).await.unwrap();
        write_known(&client, &known, phase("Failed")).await.unwrap();
        write_known(&client, &known, phase("Running"))
            .await
            .unwrap();
        assert_eq!(stored(&client).await.as_deref(), Some("Running"));
    }
}
