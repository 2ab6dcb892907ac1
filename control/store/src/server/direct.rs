//! The direct path of KV requests, which are most requests: past the router, which boxes each request, response and body once more.
//! It also replaces the bodies of long range responses.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use futures::{TryFutureExt, future::MapOk};
use tokio_util::either::Either;
use tonic::{
    body::Body,
    codegen::{Service, http},
    server::NamedService,
};
use tower_layer::Layer;

use super::kv::page;

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// The layer that sends the requests of service `K` to it, and all others to the router.
#[derive(Clone, Debug)]
pub(super) struct DirectLayer<K>(pub(super) K);

impl<K: Clone, R> Layer<R> for DirectLayer<K> {
    type Service = Direct<K, R>;

    fn layer(&self, router: R) -> Self::Service {
        Direct {
            service: self.0.clone(),
            router,
        }
    }
}

/// The service of [`DirectLayer`].
#[derive(Clone, Debug)]
pub(super) struct Direct<K, R> {
    service: K,
    router: R,
}

impl<K, R> Service<Request> for Direct<K, R>
where
    K: Service<Request, Response = Response, Error = Infallible> + NamedService,
    R: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<MapOk<K::Future, fn(Response) -> Response>, R::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match self.service.poll_ready(context) {
            Poll::Ready(_) => self.router.poll_ready(context),
            Poll::Pending => Poll::Pending,
        }
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if is_of(K::NAME, request.uri().path()) {
            Either::Left(self.service.call(request).map_ok(page::into_body))
        } else {
            Either::Right(self.router.call(request))
        }
    }
}

/// Whether a path names a method of a service: `/SERVICE/METHOD`.
fn is_of(service: &str, path: &str) -> bool {
    path.strip_prefix('/')
        .and_then(|path| path.strip_prefix(service))
        .is_some_and(|method| method.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_methods_of_the_service_are_direct() {
        assert!(is_of("etcdserverpb.KV", "/etcdserverpb.KV/Put"));
        for path in [
            "/etcdserverpb.KVs/Put",
            "/etcdserverpb.KV",
            "etcdserverpb.KV/Put",
            "/",
            "",
        ] {
            assert!(!is_of("etcdserverpb.KV", path), "{path}");
        }
    }
}
