//! Requests that are refused, with etcd's codes and messages, as a client over gRPC gets them.

use bytes::Bytes;
use dormouse_store::{
    Limits, Store,
    proto::etcdserverpb::{
        CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest,
        LeaseKeepAliveResponse, LeaseRevokeRequest, PutRequest, RangeRequest, RequestOp,
        TxnRequest, WatchCreateRequest, WatchRequest, WatchResponse, request_op::Request as Op,
        watch_request::RequestUnion,
    },
    server::Options,
};
use http::uri::PathAndQuery;
use prost::Message;
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{
    Code, IntoStreamingRequest, Request, Response, Status, Streaming, client::Grpc,
    transport::Channel,
};
use tonic_prost::ProstCodec;

use crate::harness::{Served, within};

/// A response of which only the refusal matters; it decodes every message.
#[derive(Clone, Copy, PartialEq, Message)]
struct Ignored {}

/// A request whose first field has bytes where etcd's message has text.
#[derive(Clone, PartialEq, Message)]
struct FirstField {
    #[prost(bytes = "bytes", tag = "1")]
    bytes: Bytes,
}

async fn connect(served: &Served) -> Grpc<Channel> {
    let channel = Channel::from_shared(served.endpoint.clone()).unwrap();
    let mut client = Grpc::new(channel.connect().await.unwrap());
    client.ready().await.unwrap();
    client
}

fn path(method: &str) -> PathAndQuery {
    format!("/etcdserverpb.{method}").parse().unwrap()
}

async fn call<T: Message + 'static>(
    client: &mut Grpc<Channel>,
    method: &str,
    request: T,
) -> Result<Response<Ignored>, Status> {
    client.ready().await.unwrap();
    let codec = ProstCodec::<T, Ignored>::default();
    within(client.unary(Request::new(request), path(method), codec)).await
}

/// The code and the message of a refusal.
async fn refusal<T: Message + 'static>(
    client: &mut Grpc<Channel>,
    method: &str,
    request: T,
) -> (Code, String) {
    let refused = call(client, method, request).await.unwrap_err();
    (refused.code(), refused.message().to_owned())
}

fn etcd(code: Code, message: &str) -> (Code, String) {
    (code, format!("etcdserver: {message}"))
}

fn put(key: &'static str, bytes: usize) -> PutRequest {
    PutRequest {
        key: key.into(),
        value: vec![b'v'; bytes].into(),
        ..PutRequest::default()
    }
}

fn get(revision: i64) -> RangeRequest {
    RangeRequest {
        key: "key".into(),
        revision,
        ..RangeRequest::default()
    }
}

fn txn(ops: impl IntoIterator<Item = Op>) -> TxnRequest {
    let ops = ops.into_iter().map(|op| RequestOp { request: Some(op) });
    TxnRequest {
        success: ops.collect(),
        ..TxnRequest::default()
    }
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_at_every_size() {
    let served = Served::start().await;
    let mut client = connect(&served).await;
    let large = refusal(&mut client, "KV/Put", put("key", 1_600_000)).await;
    assert_eq!(large, etcd(Code::InvalidArgument, "request is too large"));
    let operations = [
        Op::RequestPut(put("a", 800_000)),
        Op::RequestPut(put("b", 800_000)),
    ];
    let large = refusal(&mut client, "KV/Txn", txn(operations)).await;
    assert_eq!(large, etcd(Code::InvalidArgument, "request is too large"));
    // What the transport of etcd does not accept has no text of etcd's.
    for bytes in [3 << 20, 9 << 20] {
        let (code, message) = refusal(&mut client, "KV/Put", put("key", bytes)).await;
        assert_eq!(code, Code::ResourceExhausted, "{bytes} bytes: {message}");
    }
    let member = FirstField {
        bytes: vec![b'x'; 9 << 20].into(),
    };
    let (code, message) = refusal(&mut client, "Auth/UserAdd", member).await;
    assert_eq!(code, Code::ResourceExhausted, "{message}");
    call(&mut client, "KV/Put", put("key", 1_500_000))
        .await
        .unwrap();
    served.stop().await;
}

#[tokio::test]
async fn a_limit_above_the_default_is_that_of_the_transport_too() {
    let limits = Limits {
        request_bytes_max: 12 << 20,
        ..Limits::default()
    };
    let served = Served::with_limits(limits).await;
    let mut client = connect(&served).await;
    call(&mut client, "KV/Put", put("key", 11 << 20))
        .await
        .unwrap();
    let large = refusal(&mut client, "KV/Put", put("key", 12 << 20)).await;
    assert_eq!(large, etcd(Code::InvalidArgument, "request is too large"));
    served.stop().await;
}

#[tokio::test]
async fn a_transaction_has_a_number_of_operations_and_one_write_of_a_key() {
    let served = Served::start().await;
    let mut client = connect(&served).await;
    let gets = |count| txn((0..count).map(|_| Op::RequestRange(get(0))));
    call(&mut client, "KV/Txn", gets(128)).await.unwrap();
    let many = refusal(&mut client, "KV/Txn", gets(129)).await;
    assert_eq!(
        many,
        etcd(Code::InvalidArgument, "too many operations in txn request")
    );
    let duplicate = etcd(Code::InvalidArgument, "duplicate key given in txn request");
    let delete = DeleteRangeRequest {
        key: "a".into(),
        range_end: "z".into(),
        ..DeleteRangeRequest::default()
    };
    for second in [
        Op::RequestPut(put("key", 1)),
        Op::RequestDeleteRange(delete),
    ] {
        let operations = [Op::RequestPut(put("key", 1)), second];
        assert_eq!(
            refusal(&mut client, "KV/Txn", txn(operations)).await,
            duplicate
        );
    }
    assert_eq!(served.store.revision(), 1);
    served.stop().await;
}

#[tokio::test]
async fn unknown_leases_are_refused_and_a_keep_alive_of_one_has_no_time_left() {
    let served = Served::start().await;
    let mut client = connect(&served).await;
    let unknown = etcd(Code::NotFound, "requested lease not found");
    let with_lease = PutRequest {
        lease: 7,
        ..put("key", 1)
    };
    assert_eq!(
        refusal(&mut client, "KV/Put", with_lease.clone()).await,
        unknown
    );
    let operation = txn([Op::RequestPut(with_lease)]);
    assert_eq!(refusal(&mut client, "KV/Txn", operation).await, unknown);
    let revoke = LeaseRevokeRequest { id: 7 };
    assert_eq!(
        refusal(&mut client, "Lease/LeaseRevoke", revoke).await,
        unknown
    );
    let grant = LeaseGrantRequest { id: 7, ttl: 60 };
    call(&mut client, "Lease/LeaseGrant", grant).await.unwrap();
    let again = refusal(&mut client, "Lease/LeaseGrant", grant).await;
    assert_eq!(
        again,
        etcd(Code::FailedPrecondition, "lease already exists")
    );
    let requests = [8, 7].map(|id| LeaseKeepAliveRequest { id });
    let mut answers = keep_alive(&mut client, tokio_stream::iter(requests)).await;
    for ttl in [0, 60] {
        let answer = within(answers.message()).await.unwrap().unwrap();
        assert_eq!(answer.ttl, ttl);
    }
    // The client has half-closed the stream.
    assert_eq!(within(answers.message()).await.unwrap(), None);
    served.stop().await;
}

#[tokio::test]
async fn compacted_and_future_revisions_are_out_of_range() {
    let served = Served::start().await;
    let mut client = connect(&served).await;
    for _ in 0..3 {
        call(&mut client, "KV/Put", put("key", 1)).await.unwrap();
    }
    let compact = |revision| CompactionRequest {
        revision,
        physical: true,
    };
    call(&mut client, "KV/Compact", compact(3)).await.unwrap();
    let compacted = etcd(
        Code::OutOfRange,
        "mvcc: required revision has been compacted",
    );
    let future = etcd(
        Code::OutOfRange,
        "mvcc: required revision is a future revision",
    );
    for (revision, expected) in [(2, compacted), (5, future)] {
        assert_eq!(
            refusal(&mut client, "KV/Range", get(revision)).await,
            expected
        );
        let operation = txn([Op::RequestRange(get(revision))]);
        assert_eq!(refusal(&mut client, "KV/Txn", operation).await, expected);
        assert_eq!(
            refusal(&mut client, "KV/Compact", compact(revision)).await,
            expected
        );
    }
    let mut events = watch(
        &mut client,
        tokio_stream::iter([watch_from(2), watch_from(9)]),
    )
    .await;
    let created = within(events.message()).await.unwrap().unwrap();
    assert!(created.created);
    let mut canceled = 0;
    while canceled == 0 {
        let response = within(events.message()).await.unwrap().unwrap();
        canceled += response.compact_revision;
    }
    assert_eq!(canceled, 3);
    served.stop().await;
}

#[tokio::test]
async fn broken_utf_8_is_data_in_keys_and_refused_in_names() {
    let served = Served::start().await;
    let mut client = connect(&served).await;
    let broken = Bytes::from_static(b"\xff\xfe");
    let request = PutRequest {
        key: broken.clone(),
        ..PutRequest::default()
    };
    call(&mut client, "KV/Put", request).await.unwrap();
    let name = FirstField { bytes: broken };
    for method in ["Auth/UserAdd", "Auth/RoleAdd", "Cluster/MemberAdd"] {
        let (code, message) = refusal(&mut client, method, name.clone()).await;
        assert_eq!(code, Code::Internal, "{method}: {message}");
    }
    let users = served.store.auth().read(|state| state.users().count());
    assert_eq!(users, 0);
    served.stop().await;
}

#[tokio::test]
async fn a_message_that_does_not_decode_ends_its_stream_with_an_error() {
    let served = Served::start().await;
    let mut client = connect(&served).await;
    // Field 1 is a number in one request and a message in the other.
    let broken = FirstField {
        bytes: Bytes::from_static(b"\xff\xff\xff"),
    };
    for method in ["Watch/Watch", "Lease/LeaseKeepAlive"] {
        client.ready().await.unwrap();
        let codec = ProstCodec::<FirstField, Ignored>::default();
        let requests = tokio_stream::iter([broken.clone()]).into_streaming_request();
        let answers = within(client.streaming(requests, path(method), codec)).await;
        let mut answers = answers.unwrap().into_inner();
        let ended = within(answers.message()).await.unwrap_err();
        assert_eq!(ended.code(), Code::Internal, "{method}: {ended}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_half_closed_watch_goes_on() {
    let served = Served::start().await;
    let mut client = connect(&served).await;
    let mut events = watch(&mut client, tokio_stream::iter([watch_from(0)])).await;
    assert!(within(events.message()).await.unwrap().unwrap().created);
    served.store.put(&put("key", 1)).await.unwrap();
    let response = within(events.message()).await.unwrap().unwrap();
    assert_eq!(response.events.len(), 1);
    served.stop().await;
}

#[tokio::test]
async fn calls_that_wait_do_not_stop_the_others_of_their_connection() {
    let served = Served::start().await;
    let client = connect(&served).await;
    let mut streams = Vec::new();
    for _ in 0..300 {
        let open = tokio_stream::iter([watch_from(0)]).chain(tokio_stream::pending());
        let mut events = watch(&mut client.clone(), open).await;
        assert!(within(events.message()).await.unwrap().unwrap().created);
        streams.push(events);
    }
    let mut client = client.clone();
    call(&mut client, "KV/Put", put("key", 1)).await.unwrap();
    drop(streams);
    served.stop().await;
}

#[tokio::test]
async fn the_number_of_calls_of_a_connection_can_be_limited() {
    let options = Options {
        streams_max: 2,
        ..Options::default()
    };
    let served = Served::with_options(Store::new(), options).await;
    let client = connect(&served).await;
    let mut watches = Vec::new();
    for _ in 0..2 {
        let (requests, open) = tokio::sync::mpsc::channel(1);
        requests.send(watch_from(0)).await.unwrap();
        let events = watch(&mut client.clone(), ReceiverStream::new(open)).await;
        watches.push((requests, events));
    }
    let mut waiting = client.clone();
    let mut third = tokio::spawn(async move {
        call(&mut waiting, "KV/Put", put("key", 1)).await.unwrap();
    });
    // Another connection is not limited: when its call has ended, the third could have, too.
    call(&mut connect(&served).await, "KV/Put", put("other", 1))
        .await
        .unwrap();
    assert!(futures::poll!(&mut third).is_pending());
    watches.pop();
    within(third).await.unwrap();
    served.stop().await;
}

fn watch_from(start_revision: i64) -> WatchRequest {
    WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(WatchCreateRequest {
            key: "key".into(),
            start_revision,
            ..WatchCreateRequest::default()
        })),
    }
}

async fn watch(
    client: &mut Grpc<Channel>,
    requests: impl Stream<Item = WatchRequest> + Send + 'static,
) -> Streaming<WatchResponse> {
    client.ready().await.unwrap();
    let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
    let requests = requests.into_streaming_request();
    let answers = within(client.streaming(requests, path("Watch/Watch"), codec)).await;
    answers.unwrap().into_inner()
}

async fn keep_alive(
    client: &mut Grpc<Channel>,
    requests: impl Stream<Item = LeaseKeepAliveRequest> + Send + 'static,
) -> Streaming<LeaseKeepAliveResponse> {
    client.ready().await.unwrap();
    let codec = ProstCodec::<LeaseKeepAliveRequest, LeaseKeepAliveResponse>::default();
    let requests = requests.into_streaming_request();
    let answers = client.streaming(requests, path("Lease/LeaseKeepAlive"), codec);
    within(answers).await.unwrap().into_inner()
}
