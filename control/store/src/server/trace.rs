//! Traces of calls: each message of each call, as it passes the transport.

mod tap;

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio_util::either::Either;
use tonic::{
    Code, Status,
    body::Body,
    codegen::{Service, http},
};
use tower_layer::Layer;

use tap::Tap;

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// A part of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// The encoded message of a request; a stream has several.
    Request(&'a [u8]),
    /// The encoded message of a response; a stream has several.
    Response(&'a [u8]),
    /// The end of the call.
    Status(Code, &'a str),
}

type Observer = dyn Fn(u64, &str, Part<'_>) + Send + Sync;

/// An observer of all calls: gets the number of the call, its path (`/SERVICE/METHOD`) and a part. It
/// runs on the thread that serves the call, which waits for it.
#[derive(Clone)]
pub struct Trace(Arc<Observer>);

impl Trace {
    /// A trace that passes every part to the observer.
    pub fn new(observer: impl Fn(u64, &str, Part<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observer))
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}

/// One call of a trace.
#[derive(Clone, Debug)]
struct Call {
    trace: Trace,
    number: u64,
    path: Arc<str>,
}

impl Call {
    fn part(&self, part: Part<'_>) {
        (self.trace.0)(self.number, &self.path, part);
    }

    /// The end of the call, if headers or trailers have it.
    fn end(&self, headers: &http::HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.part(Part::Status(status.code(), status.message()));
        }
    }
}

/// The layer that traces calls; without a trace it passes them on.
#[derive(Clone, Debug)]
pub(super) struct TraceLayer {
    trace: Option<Trace>,
    calls: Arc<AtomicU64>,
}

impl TraceLayer {
    pub(super) fn new(trace: Option<Trace>) -> Self {
        let calls = Arc::default();
        Self { trace, calls }
    }
}

impl<R> Layer<R> for TraceLayer {
    type Service = Traced<R>;

    fn layer(&self, service: R) -> Traced<R> {
        Traced {
            layer: self.clone(),
            service,
        }
    }
}

/// The service of [`TraceLayer`].
#[derive(Clone, Debug)]
pub(super) struct Traced<R> {
    layer: TraceLayer,
    service: R,
}

impl<R> Service<Request> for Traced<R>
where
    R: Service<Request, Response = Response, Error = Infallible>,
    R::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future =
        Either<R::Future, Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let Some(trace) = self.layer.trace.clone() else {
            return Either::Left(self.service.call(request));
        };
        let call = Call {
            trace,
            number: self.layer.calls.fetch_add(1, Ordering::Relaxed),
            path: request.uri().path().into(),
        };
        let requests = Tap::requests(call.clone());
        let response = self.service.call(request.map(|body| requests.on(body)));
        Either::Right(Box::pin(async move {
            let response = response.await?;
            call.end(response.headers());
            Ok(response.map(|body| Tap::responses(call).on(body)))
        }))
    }
}
