//! Outbound requests: without hop-by-hop header fields, and with the client's address in `x-forwarded-for`.

use std::net::IpAddr;

use http::header::{EXPECT, HOST, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Uri, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use crate::hop;
use crate::upload::Upload;

/// A request that can be sent to any backend. Its body has not been polled.
#[derive(Debug)]
pub struct Outbound {
    pub(crate) request: Request<Upload>,
    /// The client's side of the connection after a protocol upgrade, if it asked for one.
    pub(crate) upgrade: Option<OnUpgrade>,
    pub(crate) http2: bool,
}

impl Outbound {
    /// Removes the hop-by-hop fields of a received request and adds `client` to `x-forwarded-for`.
    pub fn new(mut request: Request<Incoming>, client: IpAddr) -> Self {
        let http2 = request.version() == Version::HTTP_2;
        let protocol = if http2 {
            None
        } else {
            hop::requested_upgrade(request.headers())
        };
        let upgrade = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
        let headers = request.headers_mut();
        hop::strip(headers);
        // hyper's server answers `100-continue` when the body is first polled.
        headers.remove(EXPECT);
        hop::add_forwarded_for(headers, client);
        let unknown_length = request.body().size_hint().exact().is_none();
        let headers = request.headers_mut();
        if !http2 && unknown_length {
            // hyper's client otherwise sends no body with GET and HEAD.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if let Some(protocol) = protocol {
            hop::set_upgrade(headers, protocol);
        }
        if http2 {
            address_http2(&mut request);
        } else {
            address_http1(&mut request);
        }
        Self {
            request: request.map(Upload::new),
            upgrade,
            http2,
        }
    }

    /// The fields of the request as it will be sent.
    pub fn headers(&self) -> &HeaderMap {
        self.request.headers()
    }

    /// A copy of the request, which shares its body.
    pub(crate) fn replay(&self) -> Request<Upload> {
        let mut copy = Request::new(self.request.body().share());
        *copy.method_mut() = self.request.method().clone();
        *copy.uri_mut() = self.request.uri().clone();
        *copy.version_mut() = self.request.version();
        *copy.headers_mut() = self.request.headers().clone();
        copy
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
    // HTTP/1.0 allows a request without Host; in 1.1 it is required, and empty if there is none (RFC 9112, 3.2).
    request
        .headers_mut()
        .entry(HOST)
        .or_insert(HeaderValue::from_static(""));
}

/// Scheme and authority in the target, for the pseudo-header fields of HTTP/2.
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
