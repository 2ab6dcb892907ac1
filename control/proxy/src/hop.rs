//! Hop-by-hop header fields, and `x-forwarded-for`.

use std::net::IpAddr;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Hop-by-hop fields, whether `Connection` lists them or not (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authorization"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes hop-by-hop fields, but keeps `te: trailers`, which gRPC servers require. `Content-Length` beside
/// `Transfer-Encoding` is not the body's length (RFC 9112, 6.3).
pub(crate) fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let trailers = headers
        .get_all(TE)
        .iter()
        .any(|value| has_token(value, "trailers"));
    for name in connection_listed(headers) {
        headers.remove(name);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Whether a body has a transfer coding besides chunked, such as gzip: without the field, which is not forwarded, its
/// content cannot be read.
pub fn is_coded(headers: &HeaderMap) -> bool {
    let values = headers.get_all(TRANSFER_ENCODING).iter();
    values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .any(|coding| {
            let plain: [&[u8]; 3] = [b"", b"chunked", b"identity"];
            !plain.iter().any(|plain| coding.eq_ignore_ascii_case(plain))
        })
}

/// As [`strip`], but keeps the upgrade, for a response `101 Switching Protocols`.
pub(crate) fn strip_keeping_upgrade(headers: &mut HeaderMap) {
    let protocol = headers.get(UPGRADE).cloned();
    strip(headers);
    if let Some(protocol) = protocol {
        set_upgrade(headers, protocol);
    }
}

/// The protocol of `Upgrade`, if `Connection` lists it.
pub(crate) fn requested_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let listed = headers
        .get_all(CONNECTION)
        .iter()
        .any(|value| has_token(value, "upgrade"));
    // RFC 9113 removed the upgrade to h2c; a server may ignore it.
    let protocol = headers
        .get(UPGRADE)
        .filter(|protocol| !has_token(protocol, "h2c"));
    if listed { protocol.cloned() } else { None }
}

/// Sets the two fields that request or confirm a protocol upgrade.
pub(crate) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Appends `client` to `x-forwarded-for`.
pub(crate) fn add_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let mut chain = Vec::new();
    for value in headers.get_all(FORWARDED_FOR) {
        chain.extend_from_slice(value.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(client.to_string().as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&chain) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// The fields that `Connection` lists, except `host`: removing that is an attack.
fn connection_listed(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter();
    values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
        .filter(|name| name != HOST)
        .collect()
}

fn has_token(value: &HeaderValue, token: &str) -> bool {
    let mut tokens = value.as_bytes().split(|byte| *byte == b',');
    tokens.any(|each| each.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests;
