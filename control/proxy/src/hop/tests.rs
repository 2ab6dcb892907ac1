//! Hop-by-hop fields are removed, others are kept.

use proptest::prelude::*;

use super::*;

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    map
}

#[test]
fn hop_by_hop_fields_are_removed_and_others_stay() {
    let mut map = headers(&[
        ("connection", "keep-alive, X-Private"),
        ("keep-alive", "timeout=5"),
        ("x-private", "1"),
        ("transfer-encoding", "chunked"),
        ("trailer", "digest"),
        ("x-public", "2"),
    ]);
    strip(&mut map);
    assert_eq!(map, headers(&[("trailer", "digest"), ("x-public", "2")]));
}

#[test]
fn a_content_length_beside_a_transfer_encoding_is_removed() {
    let mut map = headers(&[("content-length", "2"), ("transfer-encoding", "chunked")]);
    strip(&mut map);
    assert!(map.is_empty(), "{map:?}");
}

#[test]
fn transfer_codings_besides_chunked_are_found() {
    for (value, coded) in [
        ("chunked", false),
        (" Chunked ,", false),
        ("identity", false),
        ("gzip, chunked", true),
        ("gzip", true),
        ("chunked, gzip", true),
    ] {
        let map = headers(&[("transfer-encoding", value)]);
        assert_eq!(is_coded(&map), coded, "{value}");
    }
    let two = headers(&[
        ("transfer-encoding", "gzip"),
        ("transfer-encoding", "chunked"),
    ]);
    assert!(is_coded(&two));
}

#[test]
fn a_connection_field_cannot_remove_the_host() {
    let mut map = headers(&[("connection", "host, close"), ("host", "docs")]);
    strip(&mut map);
    assert_eq!(map, headers(&[("host", "docs")]));
}

#[test]
fn te_keeps_trailers_and_nothing_else() {
    let mut map = headers(&[("te", "gzip;q=0.5, Trailers")]);
    strip(&mut map);
    assert_eq!(map, headers(&[("te", "trailers")]));
    let mut map = headers(&[("te", "gzip")]);
    strip(&mut map);
    assert!(map.is_empty());
}

#[test]
fn an_upgrade_is_requested_only_if_connection_lists_it() {
    let both = headers(&[
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
    ]);
    assert_eq!(requested_upgrade(&both).unwrap(), "websocket");
    assert!(requested_upgrade(&headers(&[("upgrade", "websocket")])).is_none());
    assert!(requested_upgrade(&headers(&[("connection", "upgrade")])).is_none());
    assert!(
        requested_upgrade(&headers(&[("connection", "upgrade"), ("upgrade", "h2c")])).is_none()
    );
}

#[test]
fn the_client_is_appended_to_the_chain_of_clients() {
    let mut map = headers(&[
        ("x-forwarded-for", "2001:db8::1"),
        ("x-forwarded-for", "::2"),
    ]);
    add_forwarded_for(&mut map, "2001:db8::3".parse().unwrap());
    assert_eq!(
        map,
        headers(&[("x-forwarded-for", "2001:db8::1, ::2, 2001:db8::3")])
    );
}

proptest! {
    #[test]
    fn all_fields_that_connection_lists_are_removed(names in prop::collection::vec("x-[a-z]{1,4}", 0..6)) {
        let mut map = HeaderMap::new();
        for name in &names {
            map.insert(HeaderName::try_from(name).unwrap(), HeaderValue::from_static("1"));
        }
        map.insert(CONNECTION, HeaderValue::try_from(names.join(" ,")).unwrap());
        map.insert("kept", HeaderValue::from_static("1"));
        strip(&mut map);
        prop_assert_eq!(map, headers(&[("kept", "1")]));
    }

    #[test]
    fn no_connection_value_causes_a_panic(value in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let mut map = HeaderMap::new();
            map.insert(CONNECTION, value);
            strip(&mut map);
            prop_assert!(map.is_empty());
        }
    }
}
