//! Writes ADD's result in the version that the runtime asked for, after what earlier plugins of a chain said. Pure.

use std::net::Ipv6Addr;

use serde_json::{Value, json};

use crate::invocation::Invocation;
use crate::message::Wired;
use crate::version::SpecVersion;

#[cfg(test)]
mod tests;

/// The result of ADD.
pub fn render(invocation: &Invocation, wired: &Wired) -> Value {
    if invocation.version < SpecVersion::V0_3_0 {
        return render_old(invocation, wired);
    }
    let mut result = invocation
        .previous
        .clone()
        .filter(Value::is_object)
        .unwrap_or(json!({}));
    result["cniVersion"] = invocation.version.text().into();
    let first = result
        .get("interfaces")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    append(&mut result, "interfaces", interfaces(invocation, wired));
    append(
        &mut result,
        "ips",
        vec![ip(invocation.version, wired, first + 2)],
    );
    append(&mut result, "routes", vec![route(wired)]);
    if let Some(dns) = &invocation.dns {
        result["dns"] = dns.clone();
    }
    result
}

fn append(result: &mut Value, key: &str, more: Vec<Value>) {
    match result.get_mut(key).and_then(Value::as_array_mut) {
        Some(list) => list.extend(more),
        None => result[key] = more.into(),
    }
}

fn interfaces(invocation: &Invocation, wired: &Wired) -> Vec<Value> {
    let links = [
        (&wired.bridge, None),
        (&wired.host, None),
        (&wired.pod, Some(())),
    ];
    links
        .into_iter()
        .map(|(link, in_pod)| {
            let mut interface = json!({ "name": link.name, "mac": link.mac });
            if in_pod.is_some() {
                interface["sandbox"] = invocation.environment.netns.clone().into();
            }
            if invocation.version >= SpecVersion::V1_1_0 {
                interface["mtu"] = wired.mtu.into();
            }
            interface
        })
        .collect()
}

fn ip(version: SpecVersion, wired: &Wired, interface: usize) -> Value {
    let mut ip = json!({
        "address": format!("{}/128", wired.address),
        "gateway": wired.gateway.to_string(),
        "interface": interface,
    });
    if version < SpecVersion::V1_0_0 {
        ip["version"] = "6".into();
    }
    ip
}

fn route(wired: &Wired) -> Value {
    json!({ "dst": "::/0", "gw": wired.gateway.to_string() })
}

fn render_old(invocation: &Invocation, wired: &Wired) -> Value {
    let mut result = json!({
        "cniVersion": invocation.version.text(),
        "ip6": {
            "ip": format!("{}/128", wired.address),
            "gateway": wired.gateway.to_string(),
            "routes": [route(wired)],
        },
    });
    if let Some(dns) = &invocation.dns {
        result["dns"] = dns.clone();
    }
    result
}

/// The IPv6 addresses that a result names; those of other plugins are among them.
pub fn addresses(result: &Value) -> Vec<Ipv6Addr> {
    let ips = result
        .get("ips")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    ips.filter_map(|ip| ip.get("address")?.as_str()?.split('/').next()?.parse().ok())
        .collect()
}
