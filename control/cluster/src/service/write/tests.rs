//! Writes of Services by clients that go away.

use dormouse_store::{Store, server};
use futures::FutureExt;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test]
async fn a_write_whose_client_goes_away_is_finished() {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    tokio::spawn(server::serve(listener, Store::default(), shutdown.clone()));
    let client = Client::connect(&format!("http://{address}")).await.unwrap();
    let ranges = ServiceRanges::parse(&["fd00:96::/108".to_owned()], &[]).unwrap();
    let services = Services::new(client, ranges);
    let named = |name: &str| -> Service {
        let spec = json!({"clusterIP": "fd00:96::5", "clusterIPs": ["fd00:96::5"], "ipFamilies": ["IPv6"]});
        serde_json::from_value(
            json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec}),
        )
        .unwrap()
    };
    let first = services.create(named("a")).await.unwrap();
    // The client is gone at once; what it began is done all the same.
    assert!(
        services
            .delete(&first, &Guard::default())
            .now_or_never()
            .is_none()
    );
    let given = async {
        loop {
            match services.create(named("b")).await {
                Ok(_) => break,
                Err(ServiceError::Invalid(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), given)
        .await
        .unwrap();
    shutdown.cancel();
}
