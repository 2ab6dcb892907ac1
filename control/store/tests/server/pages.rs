//! Range responses of all lengths over gRPC: equal to the store's answers, however the body is sent.

use dormouse_store::proto::etcdserverpb::{
    PutRequest, RangeRequest, RangeResponse,
    range_request::{SortOrder, SortTarget},
};
use http::uri::PathAndQuery;
use tonic::{Request, Status, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use crate::harness::{Served, within};

/// Longer than all responses of these tests.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// A server with keys whose values have these lengths.
async fn with_values(lengths: impl IntoIterator<Item = usize>) -> Served {
    let served = Served::start().await;
    for (n, length) in lengths.into_iter().enumerate() {
        let put = PutRequest {
            key: format!("k{n:05}").into(),
            value: vec![b'v'; length].into(),
            ..PutRequest::default()
        };
        served.store.put(&put).await.unwrap();
    }
    served
}

async fn connect(served: &Served) -> Grpc<Channel> {
    let channel = Channel::from_shared(served.endpoint.clone()).unwrap();
    let client = Grpc::new(channel.connect().await.unwrap());
    client.max_decoding_message_size(RESPONSE_BYTES_MAX)
}

async fn range(
    client: &mut Grpc<Channel>,
    request: &RangeRequest,
) -> Result<RangeResponse, Status> {
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/etcdserverpb.KV/Range");
    let codec = ProstCodec::<RangeRequest, RangeResponse>::default();
    let answer = within(client.unary(Request::new(request.clone()), path, codec)).await?;
    Ok(answer.into_inner())
}

fn all() -> RangeRequest {
    RangeRequest {
        key: "k".into(),
        range_end: "l".into(),
        ..RangeRequest::default()
    }
}

/// Compares the responses to a request over gRPC and from the store.
async fn compare(served: &Served, client: &mut Grpc<Channel>, request: RangeRequest) {
    let wanted = served.store.range(&request).await.unwrap();
    assert_eq!(
        range(client, &request).await.unwrap(),
        wanted,
        "{request:?}"
    );
}

#[tokio::test]
async fn short_and_long_ranges_are_the_answers_of_the_store() {
    let lengths = (0..600).map(|n| if n % 100 == 99 { 200_000 } else { n });
    let served = with_values(lengths).await;
    let mut client = connect(&served).await;
    for limit in [0, 1, 20, 99, 100, 101, 599, 600, 601] {
        compare(&served, &mut client, RangeRequest { limit, ..all() }).await;
    }
    let by_value = RangeRequest {
        sort_order: SortOrder::Descend.into(),
        sort_target: SortTarget::Value.into(),
        limit: 300,
        ..all()
    };
    compare(&served, &mut client, by_value).await;
    let keys_only = RangeRequest {
        keys_only: true,
        ..all()
    };
    compare(&served, &mut client, keys_only).await;
    served.stop().await;
}

#[tokio::test]
async fn a_list_that_is_dropped_unread_leaves_the_connection_usable() {
    let served = with_values([100_000; 100]).await;
    let mut client = connect(&served).await;
    for _ in 0..3 {
        // More than the windows of HTTP/2 take: the response is in progress when it is dropped.
        let short = client.clone().max_decoding_message_size(1_000);
        let refused = range(&mut short.clone(), &all()).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::OutOfRange);
    }
    compare(&served, &mut client, all()).await;
    served.stop().await;
}
