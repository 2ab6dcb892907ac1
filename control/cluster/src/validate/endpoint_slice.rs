//! Validation of EndpointSlices, with Kubernetes' rules, fields and words.

use std::collections::HashSet;
use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

use super::service::{PROTOCOLS, special};
use super::{name, words};
use crate::FieldError;
use crate::service::IpFamily;

/// Kubernetes' limits of a slice.
const ENDPOINTS_MAX: usize = 1_000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
/// The types of addresses.
const TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];

/// The errors of an EndpointSlice, in place of `old`.
pub fn endpoint_slice(old: Option<&EndpointSlice>, slice: &EndpointSlice) -> Vec<FieldError> {
    let mut errors = name::object(&slice.metadata, name::LEN_MAX);
    let type_ = slice.address_type.as_str();
    if type_.is_empty() {
        errors.push(words::required("addressType", ""));
    } else if !TYPES.contains(&type_) {
        errors.push(words::unsupported("addressType", type_, &TYPES));
    }
    if old.is_some_and(|old| old.address_type != slice.address_type) {
        errors.push(words::invalid("addressType", type_, "field is immutable"));
    }
    let ports = slice.ports.as_deref().unwrap_or_default();
    let endpoints = slice.endpoints.as_deref().unwrap_or_default();
    if endpoints.len() > ENDPOINTS_MAX {
        errors.push(words::too_many("endpoints", endpoints.len(), ENDPOINTS_MAX));
    } else {
        for (index, one) in endpoints.iter().enumerate() {
            endpoint(&format!("endpoints[{index}]"), one, type_, &mut errors);
        }
    }
    if ports.len() > PORTS_MAX {
        errors.push(words::too_many("ports", ports.len(), PORTS_MAX));
    } else {
        all_ports(ports, &mut errors);
    }
    errors
}

fn endpoint(field: &str, endpoint: &Endpoint, type_: &str, errors: &mut Vec<FieldError>) {
    let count = endpoint.addresses.len();
    let all = format!("{field}.addresses");
    if count == 0 {
        errors.push(words::required(
            all.as_str(),
            "must contain at least 1 address",
        ));
    } else if count > ADDRESSES_MAX {
        errors.push(words::too_many(all.as_str(), count, ADDRESSES_MAX));
    }
    for (index, text) in endpoint.addresses.iter().enumerate().take(ADDRESSES_MAX) {
        errors.extend(address(&format!("{all}[{index}]"), text, type_));
    }
    if let Some(hostname) = &endpoint.hostname {
        errors.extend(name::check(&format!("{field}.hostname"), hostname, 63));
    }
    if let Some(node) = &endpoint.node_name {
        errors.extend(name::check(
            &format!("{field}.nodeName"),
            node,
            name::LEN_MAX,
        ));
    }
}

fn address(field: &str, text: &str, type_: &str) -> Option<FieldError> {
    if type_ == "FQDN" {
        return name::check(field, text.trim_end_matches('.'), name::LEN_MAX);
    }
    let family = IpFamily::parse(type_)?;
    let parsed = text.parse::<IpAddr>().ok();
    match parsed.filter(|address| IpFamily::of(*address) == family) {
        None => {
            let detail = format!("must be a valid {type_} address");
            Some(words::invalid(field, text, detail))
        }
        Some(address) => {
            special(address).map(|kind| words::invalid(field, text, format!("may not be {kind}")))
        }
    }
}

fn all_ports(ports: &[EndpointPort], errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let field = format!("ports[{index}]");
        let own = port.name.as_deref().unwrap_or_default();
        if !own.is_empty() {
            errors.extend(name::check(&format!("{field}.name"), own, 63));
        }
        if !names.insert(own) {
            errors.push(words::duplicate(format!("{field}.name"), own));
        }
        let protocol = port.protocol.as_deref().unwrap_or_default();
        if !PROTOCOLS.contains(&protocol) {
            errors.push(words::unsupported(
                format!("{field}.protocol"),
                protocol,
                &PROTOCOLS,
            ));
        }
        let number = port.port;
        errors.extend(number.and_then(|number| words::port(format!("{field}.port"), number)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(change: impl FnOnce(&mut Value)) -> EndpointSlice {
        let mut value = json!({"metadata": {"name": "web-1", "namespace": "shop"}, "addressType": "IPv6",
            "endpoints": [{"addresses": ["fd00::1"], "nodeName": "node-1"}],
            "ports": [{"name": "http", "protocol": "TCP", "port": 80}]});
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    fn check(change: impl FnOnce(&mut Value), want: &[&str]) {
        let old = slice(|_| {});
        let errors = endpoint_slice(Some(&old), &slice(change));
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn a_slice_is_validated_as_in_kubernetes() {
        check(|_| {}, &[]);
        check(
            |slice| slice["endpoints"] = json!([{"addresses": ["10.0.0.1"]}]),
            &[
                "endpoints[0].addresses[0]: Invalid value: \"10.0.0.1\": must be a valid IPv6 address",
            ],
        );
        check(
            |slice| slice["endpoints"] = json!([{"addresses": ["::1"]}, {"addresses": []}]),
            &[
                "endpoints[0].addresses[0]: Invalid value: \"::1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
                "endpoints[1].addresses: Required value: must contain at least 1 address",
            ],
        );
        check(
            |slice| slice["ports"] = json!([{"protocol": "ICMP", "port": 0}, {"protocol": "TCP"}]),
            &[
                "ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
                "ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "ports[1].name: Duplicate value: \"\"",
            ],
        );
        check(
            |slice| slice["addressType"] = json!("FQDN"),
            &[
                "addressType: Invalid value: \"FQDN\": field is immutable",
                "endpoints[0].addresses[0]: `fd00::1` is not a valid name: use lower-case letters, digits and dashes, and a letter or \
                 digit at both ends",
            ],
        );
    }

    #[test]
    fn a_slice_has_at_most_a_thousand_endpoints_whatever_their_addresses() {
        let same = json!({"addresses": ["fd00::1"]});
        check(
            |slice| slice["endpoints"] = vec![same.clone(); 1_000].into(),
            &[],
        );
        check(
            |slice| slice["endpoints"] = vec![same.clone(); 1_001].into(),
            &["endpoints: Too many: 1001: must have at most 1000 items"],
        );
    }
}
