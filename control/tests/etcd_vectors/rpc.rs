//! A gRPC client for dynamic messages.

use bytes::{Buf, BufMut, Bytes};
use futures::{Stream, StreamExt, stream::BoxStream};
use http::uri::PathAndQuery;
use prost::Message;
use prost_reflect::{DynamicMessage, MethodDescriptor};
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    metadata::{AsciiMetadataKey, AsciiMetadataValue},
    transport::Channel,
};

/// Metadata of a request.
pub(crate) type Meta = Vec<(String, String)>;

struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

fn path(method: &MethodDescriptor) -> PathAndQuery {
    let service = method.parent_service().full_name().to_owned();
    format!("/{service}/{}", method.name()).parse().unwrap()
}

fn request<T>(message: T, meta: &Meta) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in meta {
        let name: AsciiMetadataKey = name.parse().unwrap();
        let value: AsciiMetadataValue = value.parse().unwrap();
        request.metadata_mut().insert(name, value);
    }
    request
}

fn client(channel: &Channel) -> Grpc<Channel> {
    Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX)
}

fn decode(method: &MethodDescriptor, bytes: Bytes) -> DynamicMessage {
    DynamicMessage::decode(method.output(), bytes).unwrap()
}

pub(crate) async fn call(
    channel: &Channel,
    method: &MethodDescriptor,
    message: &DynamicMessage,
    meta: &Meta,
) -> Result<DynamicMessage, Status> {
    let mut client = client(channel);
    client.ready().await.unwrap();
    let request = request(Bytes::from(message.encode_to_vec()), meta);
    let response = client.unary(request, path(method), Raw).await?;
    Ok(decode(method, response.into_inner()))
}

pub(crate) async fn stream(
    channel: &Channel,
    method: &MethodDescriptor,
    messages: impl Stream<Item = DynamicMessage> + Send + 'static,
    meta: &Meta,
) -> Result<BoxStream<'static, Result<DynamicMessage, Status>>, Status> {
    let mut client = client(channel);
    client.ready().await.unwrap();
    let bytes = messages.map(|message| Bytes::from(message.encode_to_vec()));
    let response = client
        .streaming(request(bytes, meta), path(method), Raw)
        .await?;
    let method = method.clone();
    Ok(response
        .into_inner()
        .map(move |bytes| bytes.map(|bytes| decode(&method, bytes)))
        .boxed())
}
