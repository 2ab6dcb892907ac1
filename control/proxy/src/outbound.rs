//! A request on its way out: what was meant for our hop only is gone, and who asked is written down.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{EXPECT, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Uri, Version};
use http_body::Body;
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use crate::hop;

/// A request's body: the client's, streamed; or none, when a bodyless request is sent once more.
pub type Upload = Either<Incoming, Empty<Bytes>>;

/// A request made ready to leave for any backend. Its body has not been polled.
#[derive(Debug)]
pub struct Outbound {
    pub(crate) request: Request<Upload>,
    /// Present when the client asked for another protocol: its side of the connection, once switched.
    pub(crate) upgrade: Option<OnUpgrade>,
    pub(crate) http2: bool,
}

impl Outbound {
    /// Makes a received request ready: hop-by-hop fields removed, `x-forwarded-for` extended by `client`.
    pub fn new(mut request: Request<Incoming>, client: IpAddr) -> Self {
        let http2 = request.version() == Version::HTTP_2;
        let protocol = if http2 {
            None
        } else {
            hop::asked_upgrade(request.headers())
        };
        let upgrade = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
        let headers = request.headers_mut();
        hop::strip(headers);
        // Our server answers `100-continue` itself, the moment the body is first polled.
        headers.remove(EXPECT);
        hop::add_forwarded_for(headers, client);
        if let Some(protocol) = protocol {
            hop::ask_upgrade(headers, protocol);
        }
        if http2 {
            address_http2(&mut request);
        } else {
            address_http1(&mut request);
        }
        Self {
            request: request.map(Either::Left),
            upgrade,
            http2,
        }
    }

    /// The same request again, where HTTP allows to repeat it unasked (RFC 9110, 9.2.2) and no body is lost.
    pub(crate) fn replay(&self) -> Option<Request<Upload>> {
        let repeatable = self.request.method().is_idempotent()
            && self.upgrade.is_none()
            && self.request.body().is_end_stream();
        repeatable.then(|| {
            let mut again = Request::new(Either::Right(Empty::new()));
            *again.method_mut() = self.request.method().clone();
            *again.uri_mut() = self.request.uri().clone();
            *again.version_mut() = self.request.version();
            *again.headers_mut() = self.request.headers().clone();
            again
        })
    }
}

/// Origin form, with the target's authority in `Host` (RFC 9112, 3.2).
fn address_http1(request: &mut Request<Incoming>) {
    let authority = request
        .uri()
        .authority()
        .map(|authority| authority.as_str().to_owned());
    let path = request.uri().path_and_query().cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    *request.version_mut() = Version::HTTP_11;
    if let Some(host) = authority.and_then(|host| HeaderValue::from_str(&host).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    // HTTP/1.0 may come without; 1.1 may not leave without (RFC 9112, 3.2: empty when there is none).
    request
        .headers_mut()
        .entry(HOST)
        .or_insert(HeaderValue::from_static(""));
}

/// Scheme and authority in the target, as the pseudo-fields of HTTP/2 want them.
fn address_http2(request: &mut Request<Incoming>) {
    let mut parts = request.uri().clone().into_parts();
    if parts.authority.is_none() {
        let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
        parts.authority = host
            .and_then(|host| Authority::try_from(host).ok())
            .or_else(|| Some(Authority::from_static("app")));
    }
    parts.scheme = Some(Scheme::HTTP);
    parts
        .path_and_query
        .get_or_insert_with(|| PathAndQuery::from_static("/"));
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}
