//! The capability `portMappings`: ports of the node for ports of the pod. Pure.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::supported::is_empty;
use crate::error::{CniError, code};
use crate::message::{PortMapping, PortProtocol};

const KEY: &str = "runtimeConfig.portMappings";
/// Containerd capitalises them: Go ignores the case of keys.
const KEYS: [&str; 4] = ["hostPort", "containerPort", "protocol", "hostIP"];

/// The mappings. Entries without a port of the node ask for nothing.
pub(super) fn port_mappings(list: &Value) -> Result<Vec<PortMapping>, CniError> {
    let entries = list
        .as_array()
        .ok_or_else(|| decode(list, "is not a list"))?;
    let read = entries.iter().map(|entry| mapping(list, entry));
    let mut mappings: Vec<_> = read
        .filter_map(Result::transpose)
        .collect::<Result<_, _>>()?;
    mappings.sort_unstable();
    mappings.dedup();
    let claims = |a: &PortMapping, b: &PortMapping| {
        (a.host, a.protocol, a.address) == (b.host, b.protocol, b.address)
    };
    for (n, one) in mappings.iter().enumerate() {
        if mappings[n + 1..].iter().any(|other| claims(one, other)) {
            let why = format!("has two entries for the node's port {}", one.host);
            return Err(decode(list, &why));
        }
    }
    Ok(mappings)
}

fn mapping(list: &Value, entry: &Value) -> Result<Option<PortMapping>, CniError> {
    let fields = entry
        .as_object()
        .ok_or_else(|| decode(list, "has an entry that is not an object"))?;
    let is_known = |key: &str| KEYS.iter().any(|known| known.eq_ignore_ascii_case(key));
    let mut unknown = fields.iter();
    if let Some((key, value)) = unknown.find(|(key, value)| !is_known(key) && !is_empty(value)) {
        let fix = "a mapping has hostPort, containerPort, protocol and hostIP";
        return Err(CniError::unsupported(&format!("{KEY}[].{key}"), value).details(fix));
    }
    let host = number(list, fields, "hostPort")?;
    if host == 0 {
        return Ok(None);
    }
    let pod = number(list, fields, "containerPort")?;
    if pod == 0 {
        return Err(decode(list, "has an entry without containerPort"));
    }
    Ok(Some(PortMapping {
        host,
        pod,
        protocol: protocol(list, fields)?,
        address: address(list, fields)?,
    }))
}

/// The value of a key, whatever its case; none if it is empty.
fn field<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let mut all = fields.iter();
    let found = all.find(|(found, _)| found.eq_ignore_ascii_case(key));
    found
        .map(|(_, value)| value)
        .filter(|value| !is_empty(value))
}

/// A port number; 0 if it is absent.
fn number(list: &Value, fields: &Map<String, Value>, key: &str) -> Result<u16, CniError> {
    let Some(value) = field(fields, key) else {
        return Ok(0);
    };
    let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
    number.ok_or_else(|| decode(list, &format!("has {key} {value}, which is not a port")))
}

fn protocol(list: &Value, fields: &Map<String, Value>) -> Result<PortProtocol, CniError> {
    let value = field(fields, "protocol").map(|value| value.as_str().unwrap_or_default());
    match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("tcp") => Ok(PortProtocol::Tcp),
        Some("udp") => Ok(PortProtocol::Udp),
        Some("sctp") => Ok(PortProtocol::Sctp),
        Some(_) => Err(CniError::unsupported(KEY, list).details("protocols are TCP, UDP and SCTP")),
    }
}

/// The node's address; none for all of them.
fn address(list: &Value, fields: &Map<String, Value>) -> Result<Option<IpAddr>, CniError> {
    let Some(value) = field(fields, "hostIP") else {
        return Ok(None);
    };
    let address = value.as_str().and_then(|text| text.parse::<IpAddr>().ok());
    let wrong = || {
        decode(
            list,
            &format!("has hostIP {value}, which is not an address"),
        )
    };
    let address = address.ok_or_else(wrong)?.to_canonical();
    if address.is_loopback() {
        let fix = "a port of a pod has no loopback address: leave hostIP out, or name an address of the node";
        return Err(CniError::unsupported(KEY, list).details(fix));
    }
    Ok(Some(address))
}

fn decode(list: &Value, why: &str) -> CniError {
    CniError::new(code::DECODE, format!("`{KEY}` {why}: {list}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mappings_are_read_in_the_spelling_of_each_runtime() {
        let list = json!([
            {"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": ""},
            {"hostPort": 53, "containerPort": 5353, "protocol": "UDP", "hostIP": "::ffff:192.0.2.1"},
            {"hostPort": 9, "containerPort": 10, "protocol": "SCTP", "hostIP": "::"},
            {"hostPort": 0, "containerPort": 10},
            {"hostPort": 8080, "containerPort": 80},
        ]);
        let mapping = |host, pod, protocol, address: Option<&str>| PortMapping {
            host,
            pod,
            protocol,
            address: address.map(|text| text.parse().unwrap()),
        };
        let mut wanted = vec![
            mapping(8080, 80, PortProtocol::Tcp, None),
            mapping(53, 5353, PortProtocol::Udp, Some("192.0.2.1")),
            mapping(9, 10, PortProtocol::Sctp, Some("::")),
        ];
        wanted.sort_unstable();
        assert_eq!(port_mappings(&list).unwrap(), wanted);
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        let entry = |more: Value| {
            let mut entry = json!({"hostPort": 80, "containerPort": 8080});
            let more = more.as_object().unwrap().clone();
            entry.as_object_mut().unwrap().extend(more);
            port_mappings(&json!([entry])).unwrap_err()
        };
        for (more, code, part) in [
            (json!({"hostPort": 65_536}), 6, "65536"),
            (json!({"containerPort": 0}), 6, "containerPort"),
            (json!({"protocol": "icmp"}), 2, "icmp"),
            (json!({"hostIP": "node"}), 6, "node"),
            (json!({"hostIP": "127.0.0.1"}), 2, "127.0.0.1"),
            (json!({"x-vendor": 1}), 2, "x-vendor"),
        ] {
            let error = entry(more);
            assert_eq!(error.code, code, "{error}");
            assert!(error.msg.contains(part), "{error}");
        }
        assert_eq!(port_mappings(&json!({})).unwrap_err().code, 6);
        let twice = port_mappings(&json!([
            {"hostPort": 80, "containerPort": 8080},
            {"hostPort": 80, "containerPort": 8081},
        ]));
        let twice = twice.unwrap_err();
        assert!(twice.msg.contains("port 80"), "{twice}");
        let apart = port_mappings(&json!([
            {"hostPort": 80, "containerPort": 8080},
            {"hostPort": 80, "containerPort": 8081, "protocol": "udp"},
        ]));
        assert_eq!(apart.unwrap().len(), 2);
    }
}
