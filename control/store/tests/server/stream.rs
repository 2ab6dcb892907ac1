//! Range streams: their parts, merged, are the response of a range request.

use dormouse_store::proto::etcdserverpb::{
    PutRequest, RangeRequest, RangeResponse, RangeStreamResponse, range_request::SortOrder,
};
use http::uri::PathAndQuery;
use tonic::{Code, Request, Status, Streaming, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use crate::harness::{Served, within};

const KEYS: u32 = 3_000;

/// A server with [`KEYS`] keys in their second version, then deletions above them.
async fn filled() -> Served {
    let served = Served::start().await;
    for n in 0..2 * KEYS {
        let put = PutRequest {
            key: format!("k{:05}", n % KEYS).into(),
            value: vec![b'v'; 300].into(),
            ..PutRequest::default()
        };
        served.store.put(&put).await.unwrap();
    }
    served
}

fn all() -> RangeRequest {
    RangeRequest {
        key: "k".into(),
        range_end: "l".into(),
        ..RangeRequest::default()
    }
}

async fn stream(
    served: &Served,
    request: &RangeRequest,
) -> Result<Streaming<RangeStreamResponse>, Status> {
    let channel = Channel::from_shared(served.endpoint.clone()).unwrap();
    let mut client = Grpc::new(channel.connect().await.unwrap());
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/etcdserverpb.KV/RangeStream");
    let request = Request::new(request.clone());
    let codec = ProstCodec::<RangeRequest, RangeStreamResponse>::default();
    let answer = client.server_streaming(request, path, codec).await?;
    Ok(answer.into_inner())
}

/// The parts of a stream.
async fn parts(served: &Served, request: &RangeRequest) -> Result<Vec<RangeResponse>, Status> {
    let mut stream = stream(served, request).await?;
    let mut parts = Vec::new();
    while let Some(part) = within(stream.message()).await? {
        parts.push(part.range_response.unwrap());
    }
    Ok(parts)
}

#[tokio::test]
async fn the_parts_of_a_stream_are_the_range() {
    let served = filled().await;
    let limited = |limit| RangeRequest { limit, ..all() };
    let middle = i64::from(KEYS + KEYS / 2);
    let requests = [
        all(),
        limited(1),
        limited(i64::from(KEYS) - 1),
        limited(i64::from(KEYS)),
        limited(700),
        RangeRequest {
            revision: middle,
            ..limited(1_000)
        },
        RangeRequest {
            revision: 500,
            ..all()
        },
        RangeRequest {
            keys_only: true,
            ..all()
        },
        RangeRequest {
            count_only: true,
            ..all()
        },
        RangeRequest {
            range_end: "k".into(),
            ..all()
        },
        RangeRequest {
            range_end: "".into(),
            key: "k00007".into(),
            ..all()
        },
    ];
    for request in requests {
        let whole = served.store.range(&request).await.unwrap();
        let mut parts = parts(&served, &request).await.unwrap();
        let mut last = parts.pop().unwrap();
        for part in parts.iter().rev() {
            assert_eq!((&part.header, part.more, part.count), (&None, false, 0));
            assert!(!part.kvs.is_empty());
            last.kvs.splice(0..0, part.kvs.iter().cloned());
        }
        assert_eq!(last, whole, "{request:?}");
    }
    assert!(parts(&served, &all()).await.unwrap().len() > 3);
    served.stop().await;
}

#[tokio::test]
async fn a_stream_reads_its_revision_until_that_is_compacted() {
    let served = filled().await;
    let before = served.store.range(&all()).await.unwrap();
    let mut stream = stream(&served, &all()).await.unwrap();
    let first = within(stream.message()).await.unwrap().unwrap();
    let put = PutRequest {
        key: "kx".into(),
        ..PutRequest::default()
    };
    served.store.put(&put).await.unwrap();
    let mut kvs = first.range_response.unwrap().kvs;
    while let Some(part) = within(stream.message()).await.unwrap() {
        kvs.extend(part.range_response.unwrap().kvs);
    }
    assert_eq!(kvs, before.kvs);
    let old = RangeRequest {
        revision: 5,
        ..all()
    };
    served.store.compact(6, true).await.unwrap();
    assert_eq!(
        parts(&served, &old).await.unwrap_err().code(),
        Code::OutOfRange
    );
    served.stop().await;
}

#[tokio::test]
async fn what_a_stream_does_not_serve_is_unimplemented() {
    let served = Served::start().await;
    let descending = RangeRequest {
        sort_order: SortOrder::Descend.into(),
        ..all()
    };
    let filtered = RangeRequest {
        min_mod_revision: 2,
        ..all()
    };
    for request in [descending, filtered] {
        let refusal = parts(&served, &request).await.unwrap_err();
        assert_eq!(refusal.code(), Code::Unimplemented);
    }
    let refusal = parts(&served, &RangeRequest::default()).await.unwrap_err();
    assert_eq!(refusal.message(), "etcdserver: key is not provided");
    served.stop().await;
}
