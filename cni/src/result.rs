//! Results of ADD: read in the version in which they came, kept whole, written in the version that is asked for. Pure.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::message::{Link, Reserved, Wired};
use crate::object::Object;
use crate::version::SpecVersion;

mod render;
#[cfg(test)]
mod tests;

pub use render::{reserved, wired};

/// A result in no version's form: `ips` and `routes` as 1.1.0 has them, and everything else as it came.
#[derive(Clone, Debug, Default)]
pub struct AddResult {
    interfaces: Vec<Box<RawValue>>,
    ips: Vec<Object>,
    routes: Vec<Object>,
    rest: Object,
}

impl AddResult {
    /// Reads a result that says in which version it is; `version` if it does not.
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

    /// The form that a version wants. Those before 0.3.0 have room for one address of each family: the first.
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

    /// The link-layer address that it names of the pod's interface of that name; none where it says nothing readable.
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
        let mut pods = read.filter(|one| one.name == ifname && !one.sandbox.is_empty());
        let octets = pods.next()?.mac;
        let octets = octets
            .split(':')
            .map(|octet| u8::from_str_radix(octet, 16).ok());
        octets.collect::<Option<Vec<_>>>()?.try_into().ok()
    }

    /// The addresses that it names, whoever gave them.
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
