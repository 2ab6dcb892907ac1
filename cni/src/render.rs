//! The plugin's result: ADD's reply in the form of CNI, appended to the results of earlier plugins. Pure.

use serde_json::{Value, json};

use crate::invocation::Invocation;
use crate::message::{Link, Reserved, Wired};
use crate::object::Object;
use crate::result::AddResult;
use crate::version::SpecVersion;

#[cfg(test)]
mod tests;

/// The result of an ADD that wired a pod: after the entries of earlier plugins come the bridge, the links and addresses.
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
    let earlier = result.rest.get::<Object>("dns");
    if let Some(dns) = &invocation.dns
        && earlier.is_none_or(|earlier| earlier.is_empty())
    {
        result.rest.set("dns", dns)?;
    }
    result.write(version)
}

/// The result of an ADD that reserves an address for another plugin: it names no interface.
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

/// Appends an address, and the default route `destination` through its gateway.
fn push(
    result: &mut AddResult,
    (address, gateway): (&str, &str),
    destination: &str,
    interface: Option<usize>,
) -> serde_json::Result<()> {
    let (mut ip, mut route) = (Object::default(), Object::default());
    ip.set("address", address)?;
    ip.set("gateway", gateway)?;
    if let Some(interface) = interface {
        ip.set("interface", interface)?;
    }
    route.set("dst", destination)?;
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
