//! Long range responses: the body of one is the chunks that its pairs were read into, instead of a
//! buffer to which tonic's encoder would copy them.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Frame;
use prost::Message;
use tonic::{
    Response, Status,
    body::Body,
    codegen::{
        Body as HttpBody,
        http::{self, HeaderMap},
    },
};

use crate::{
    proto::etcdserverpb::RangeResponse,
    store::{Held, RangeAnswer},
};

/// Shorter responses are copied: a body of its own costs more than that.
const PAIRS_BYTES_MIN: usize = 16 << 10;

/// Bytes before a message of gRPC: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// The data of a body that is one message, in order, and their bytes as the store counts them.
#[derive(Clone, Debug)]
struct Page {
    data: VecDeque<Bytes>,
    held: Option<Arc<Held>>,
}

/// The response to a range request. Of a long one the message is empty, and the page is an extension
/// that [`into_body`] takes.
pub(super) fn response(answer: RangeAnswer) -> Result<Response<RangeResponse>, Status> {
    if answer.found.pairs.encoded_len() < PAIRS_BYTES_MIN {
        return Ok(Response::new(answer.into()));
    }
    let mut response = Response::new(RangeResponse::default());
    response.extensions_mut().insert(Page::new(answer)?);
    Ok(response)
}

/// Replaces the body of a response that has a page.
pub(in crate::server) fn into_body(mut response: http::Response<Body>) -> http::Response<Body> {
    match response.extensions_mut().remove::<Page>() {
        Some(page) => response.map(|_empty| Body::new(PageBody::new(page))),
        None => response,
    }
}

impl Page {
    fn new(answer: RangeAnswer) -> Result<Self, Status> {
        let found = answer.found;
        let head = RangeResponse {
            header: Some(answer.header),
            ..RangeResponse::default()
        };
        let tail = RangeResponse {
            more: found.more,
            count: found.count,
            ..RangeResponse::default()
        };
        let len = head.encoded_len() + found.pairs.encoded_len() + tail.encoded_len();
        let mut data = VecDeque::from(found.pairs.into_chunks());
        data.push_front(first(&head, len)?);
        data.push_back(tail.encode_to_vec().into());
        Ok(Self {
            data,
            held: answer.held.map(Arc::new),
        })
    }
}

/// The prefix of a message, and its first fields.
fn first(head: &RangeResponse, len: usize) -> Result<Bytes, Status> {
    let Ok(len) = u32::try_from(len) else {
        let text = format!("the response has {len} bytes, a message at most 4 GiB: use a limit");
        return Err(Status::resource_exhausted(text));
    };
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + head.encoded_len());
    bytes.put_u8(0);
    bytes.put_u32(len);
    bytes.put(&head.encode_to_vec()[..]);
    Ok(bytes.freeze())
}

/// The body of a call that succeeds with one message.
struct PageBody {
    page: Page,
    /// `None` after they were sent.
    trailers: Option<HeaderMap>,
}

impl PageBody {
    fn new(page: Page) -> Self {
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            http::HeaderValue::from_static("0"),
        )]);
        Self {
            page,
            trailers: Some(trailers),
        }
    }
}

impl HttpBody for PageBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let data = self.page.data.pop_front();
        if let (Some(data), Some(held)) = (&data, &self.page.held) {
            held.sent(data.len());
        }
        let frame = data
            .map(Frame::data)
            .or_else(|| self.trailers.take().map(Frame::trailers));
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.trailers.is_none()
    }
}
