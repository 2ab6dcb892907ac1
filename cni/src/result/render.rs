//! What ADD made, as a result after those of earlier plugins. Pure.

use super::{AddResult, Link, Object, Reserved, SpecVersion, Value, Wired, json};
use crate::invocation::Invocation;

/// The result of an ADD that wired a pod: what earlier plugins said, then ours.
pub fn wired(invocation: &Invocation, wired: &Wired) -> serde_json::Result<Object> {
    let mut result = invocation.previous.clone().unwrap_or_default();
    let pod = result.interfaces.len() + 2;
    let version = invocation.version;
    for (link, sandbox) in [
        (&wired.bridge, None),
        (&wired.host, None),
        (&wired.pod, Some(invocation.environment.netns.as_str())),
    ] {
        let interface = interface(link, sandbox, wired.mtu, version);
        let raw = serde_json::value::to_raw_value(&interface)?;
        result.interfaces.push(raw);
    }
    let address = format!("{}/128", wired.address);
    let gateway = wired.gateway.to_string();
    push(&mut result, (&address, &gateway), "::/0", Some(pod))?;
    if let (Some(address), Some(gateway)) = (wired.address4, wired.gateway4) {
        let (address, gateway) = (format!("{address}/32"), gateway.to_string());
        push(&mut result, (&address, &gateway), "0.0.0.0/0", Some(pod))?;
    }
    let said = result.rest.get::<Object>("dns");
    if let Some(dns) = &invocation.dns
        && said.is_none_or(|said| said.is_empty())
    {
        result.rest.set("dns", dns)?;
    }
    result.write(version)
}

/// The result of an ADD that keeps an address for another plugin: it names no interface.
pub fn reserved(invocation: &Invocation, reserved: &Reserved) -> serde_json::Result<Object> {
    let mut result = AddResult::default();
    let address = format!("{}/{}", reserved.address, reserved.prefix_length);
    let gateway = reserved.gateway.to_string();
    push(&mut result, (&address, &gateway), "::/0", None)?;
    if let Some(ipv4) = &reserved.ipv4 {
        let address = format!("{}/{}", ipv4.address, ipv4.prefix_length);
        let gateway = ipv4.gateway.to_string();
        push(&mut result, (&address, &gateway), "0.0.0.0/0", None)?;
    }
    result.write(invocation.version)
}

/// An address and the default route through its gateway.
fn push(
    result: &mut AddResult,
    (address, gateway): (&str, &str),
    everywhere: &str,
    interface: Option<usize>,
) -> serde_json::Result<()> {
    let (mut ip, mut route) = (Object::default(), Object::default());
    ip.set("address", address)?;
    ip.set("gateway", gateway)?;
    if let Some(interface) = interface {
        ip.set("interface", interface)?;
    }
    route.set("dst", everywhere)?;
    route.set("gw", gateway)?;
    result.ips.push(ip);
    result.routes.push(route);
    Ok(())
}

fn interface(link: &Link, sandbox: Option<&str>, mtu: u32, version: SpecVersion) -> Value {
    let mut interface = json!({ "name": link.name, "mac": link.mac });
    if let Some(sandbox) = sandbox {
        interface["sandbox"] = sandbox.into();
    }
    if version >= SpecVersion::V1_1_0 {
        interface["mtu"] = mtu.into();
    }
    interface
}
