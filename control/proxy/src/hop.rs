//! Header fields that belong to one connection only, and the one that tells who was at its other end.

use std::net::IpAddr;

use http::header::{CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Fields of one hop, named or not by `Connection` (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authorization"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes what must not pass a proxy. `te: trailers` stays: gRPC servers insist on it.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let trailers = headers
        .get_all(TE)
        .iter()
        .any(|value| has_token(value, "trailers"));
    for name in connection_named(headers) {
        headers.remove(name);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// As [`strip`], for the response that switches protocols.
pub(crate) fn strip_keeping_upgrade(headers: &mut HeaderMap) {
    let protocol = headers.get(UPGRADE).cloned();
    strip(headers);
    if let Some(protocol) = protocol {
        ask_upgrade(headers, protocol);
    }
}

/// The protocol that `Connection: upgrade` asks for.
pub(crate) fn asked_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = headers
        .get_all(CONNECTION)
        .iter()
        .any(|value| has_token(value, "upgrade"));
    // h2c by upgrade went with RFC 9113; a server may ignore the offer, and we do.
    let protocol = headers
        .get(UPGRADE)
        .filter(|protocol| !has_token(protocol, "h2c"));
    if asked { protocol.cloned() } else { None }
}

/// Writes the two fields that ask for, or confirm, another protocol.
pub(crate) fn ask_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
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

/// What `Connection` names, except `host`: naming it is an attack, not a wish.
fn connection_named(headers: &HeaderMap) -> Vec<HeaderName> {
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
