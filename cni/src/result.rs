//! Results of ADD: read in one version of the specification and written in another, unknown keys included. Pure.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::object::Object;
use crate::version::SpecVersion;

/// A result, independent of the version: `ips` and `routes` in the form of 1.1.0, all other keys unchanged.
#[derive(Clone, Debug, Default)]
pub struct AddResult {
    pub(crate) interfaces: Vec<Box<RawValue>>,
    pub(crate) ips: Vec<Object>,
    pub(crate) routes: Vec<Object>,
    /// All other keys, `dns` among them.
    pub(crate) rest: Object,
}

impl AddResult {
    /// Reads a result in the version that its `cniVersion` names, else in `version`.
    pub fn read(mut object: Object, version: SpecVersion) -> serde_json::Result<Self> {
        let version = object
            .take::<String>("cniVersion")?
            .filter(|text| !text.is_empty())
            .and_then(|text| SpecVersion::parse(&text).ok())
            .unwrap_or(version);
        let mut result = Self::default();
        if version < SpecVersion::V0_3_0 {
            for family in ["ip4", "ip6"] {
                if let Some(mut ip) = object.take::<Object>(family)? {
                    ip.rename("ip", "address");
                    result.routes.extend(list(&mut ip, "routes")?);
                    result.ips.push(ip);
                }
            }
        } else {
            result.interfaces = object.take("interfaces")?.unwrap_or_default();
            result.ips = list(&mut object, "ips")?;
            result.routes = list(&mut object, "routes")?;
        }
        if version < SpecVersion::V1_0_0 {
            for ip in &mut result.ips {
                ip.take::<Value>("version")?;
            }
        }
        result.rest = object;
        Ok(result)
    }

    /// The result in the form of `version`. Versions before 0.3.0 hold one address of each family: the first.
    pub fn write(self, version: SpecVersion) -> serde_json::Result<Object> {
        let mut written = Object::default();
        written.set("cniVersion", version.text())?;
        if version < SpecVersion::V0_3_0 {
            for (key, ipv4) in [("ip4", true), ("ip6", false)] {
                let first = self.ips.iter().find(|ip| is_ipv4(ip, "address") == ipv4);
                if let Some(ip) = first {
                    written.set(key, old_ip(ip.clone(), &self.routes, ipv4)?)?;
                }
            }
        } else {
            let mut ips = self.ips;
            if version < SpecVersion::V1_0_0 {
                for ip in &mut ips {
                    let family = if is_ipv4(ip, "address") { "4" } else { "6" };
                    ip.set("version", family)?;
                }
            }
            set_list(&mut written, "interfaces", &self.interfaces)?;
            set_list(&mut written, "ips", &ips)?;
            set_list(&mut written, "routes", &self.routes)?;
        }
        written.extend(self.rest);
        Ok(written)
    }

    /// The link-layer address of the pod's interface `ifname`; `None` if it is missing or unreadable.
    pub fn mac(&self, ifname: &str) -> Option<[u8; 6]> {
        #[derive(Deserialize)]
        struct Interface {
            name: String,
            mac: String,
            sandbox: String,
        }
        let interfaces = self.interfaces.iter();
        let read = interfaces
            .filter_map(|interface| serde_json::from_str::<Interface>(interface.get()).ok());
        let mut in_pod = read.filter(|one| one.name == ifname && !one.sandbox.is_empty());
        let octets = in_pod.next()?.mac;
        let octets = octets
            .split(':')
            .map(|octet| u8::from_str_radix(octet, 16).ok());
        octets.collect::<Option<Vec<_>>>()?.try_into().ok()
    }

    /// All readable addresses of `ips`, of all plugins of the chain.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let texts = self.ips.iter().filter_map(|ip| ip.get::<String>("address"));
        texts
            .filter_map(|text| text.split('/').next()?.parse().ok())
            .collect()
    }
}

fn list(object: &mut Object, key: &str) -> serde_json::Result<Vec<Object>> {
    Ok(object.take(key)?.unwrap_or_default())
}

fn set_list<T: Serialize>(object: &mut Object, key: &str, list: &[T]) -> serde_json::Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    object.set(key, list)
}

fn old_ip(mut ip: Object, routes: &[Object], ipv4: bool) -> serde_json::Result<Object> {
    ip.rename("address", "ip");
    ip.take::<Value>("interface")?;
    let routes: Vec<_> = routes
        .iter()
        .filter(|route| is_ipv4(route, "dst") == ipv4)
        .collect();
    set_list(&mut ip, "routes", &routes)?;
    Ok(ip)
}

fn is_ipv4(object: &Object, key: &str) -> bool {
    object
        .get::<String>(key)
        .is_some_and(|text| !text.contains(':'))
}
