//! A client whose endpoint is taken away and given back, and one that asks for a leader.

use etcd_client::{Client, ConnectOptions};

use crate::harness::{Served, within};

#[tokio::test]
async fn a_client_goes_on_when_its_endpoint_is_added_again() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.put("key", "value", None).await.unwrap();
    client.remove_endpoint(&served.endpoint).await.unwrap();
    client.add_endpoint(&served.endpoint).await.unwrap();
    let read = within(client.get("key", None)).await.unwrap();
    assert_eq!(read.kvs()[0].value(), b"value");
    served.stop().await;
}

#[tokio::test]
async fn a_client_that_requires_a_leader_is_served() {
    let served = Served::start().await;
    let options = ConnectOptions::new().with_require_leader(true);
    let client = Client::connect([&served.endpoint], Some(options)).await;
    let mut client = client.unwrap();
    client.put("key", "value", None).await.unwrap();
    let mut stream = client.watch("key", None).await.unwrap();
    crate::harness::created(&mut stream).await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let (mut keeper, mut responses) = client.lease_keep_alive(lease).await.unwrap();
    keeper.keep_alive().await.unwrap();
    assert_eq!(
        within(responses.message()).await.unwrap().unwrap().ttl(),
        60
    );
    served.stop().await;
}
