//! The measurement of calls: each one's start, its code and, of those with one response, its time.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::Frame;
use tonic::{
    Code, Status,
    body::Body,
    codegen::{
        Service,
        http::{self, HeaderMap},
    },
};
use tower_layer::Layer;

use super::observed::{Observer, observed};
use crate::{Store, metrics::Call};

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// The start of the message with which the transport refuses a request above its limit.
const TOO_LARGE: &str = "Error, decoded message length too large";

/// The layer that measures calls.
#[derive(Clone, Debug)]
pub(super) struct MeasureLayer(pub(super) Store);

impl<R> Layer<R> for MeasureLayer {
    type Service = Measured<R>;

    fn layer(&self, service: R) -> Measured<R> {
        Measured {
            store: self.0.clone(),
            service,
        }
    }
}

/// The service of [`MeasureLayer`].
#[derive(Clone, Debug)]
pub(super) struct Measured<R> {
    store: Store,
    service: R,
}

impl<R> Service<Request> for Measured<R>
where
    R: Service<Request, Response = Response, Error = Infallible>,
    R::Future: Unpin,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Responding<R::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let call = self.store.metrics().calls.start(request.uri().path());
        Responding {
            response: self.service.call(request),
            call,
        }
    }
}

/// The future of a response.
#[derive(Debug)]
pub(super) struct Responding<F> {
    response: F,
    /// `None` for paths that are no methods.
    call: Option<Call>,
}

impl<F> Future for Responding<F>
where
    F: Future<Output = Result<Response, Infallible>> + Unpin,
{
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Ok(response) = ready!(Pin::new(&mut self.response).poll(context));
        Poll::Ready(Ok(match self.call.take() {
            Some(call) => measured(response, call),
            None => response,
        }))
    }
}

/// Records the end of a call that its response shows; that of a stream is in its body.
fn measured(response: Response, mut call: Call) -> Response {
    match Status::from_header_map(response.headers()) {
        Some(status) => {
            let status = of_etcd(status);
            call.end(status.code());
            status.into_http()
        }
        None if call.is_unary() => {
            call.end(Code::Ok);
            response
        }
        None => response.map(|body| observed(body, Streamed(call))),
    }
}

/// The transport's refusal of a large request with the code that etcd's has.
fn of_etcd(status: Status) -> Status {
    if status.code() == Code::OutOfRange && status.message().starts_with(TOO_LARGE) {
        return Status::resource_exhausted("grpc: received message larger than max");
    }
    status
}

/// The call of a stream's response, which ends with the body.
struct Streamed(Call);

impl Observer for Streamed {
    fn frame(&mut self, frame: Option<&Result<Frame<Bytes>, Status>>) {
        match frame {
            Some(Ok(frame)) => {
                if let Some(code) = frame.trailers_ref().and_then(code) {
                    self.0.end(code);
                }
            }
            Some(Err(status)) => self.0.end(status.code()),
            None => self.0.end(Code::Ok),
        }
    }
}

fn code(trailers: &HeaderMap) -> Option<Code> {
    Status::from_header_map(trailers).map(|status| status.code())
}
