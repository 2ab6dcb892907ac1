//! Finds the address that a runtime asks for: three places, in the order that CNI's conventions give.

use std::net::Ipv6Addr;

use serde_json::{Map, Value};

use crate::error::{CniError, code};

/// `runtimeConfig.ips`, else `args.cni.ips`, else `IP=` of `CNI_ARGS`.
pub(super) fn requested(
    conf: &Map<String, Value>,
    args: &str,
) -> Result<Option<Ipv6Addr>, CniError> {
    let runtime = conf.get("runtimeConfig").and_then(|v| v.get("ips"));
    let labels = conf
        .get("args")
        .and_then(|v| v.get("cni"))
        .and_then(|v| v.get("ips"));
    for (key, list) in [("runtimeConfig.ips", runtime), ("args.cni.ips", labels)] {
        let Some(list) = list.filter(|v| !v.is_null()) else {
            continue;
        };
        let texts: Option<Vec<_>> = list
            .as_array()
            .and_then(|l| l.iter().map(Value::as_str).collect());
        let texts = texts
            .ok_or_else(|| CniError::new(code::DECODE, format!("`{key}` is no list of strings")))?;
        match texts.as_slice() {
            [] => {}
            [one] => return address(key, one).map(Some),
            _ => {
                let msg = format!("unsupported field `{key}` with value {list}");
                let why = "a pod has one address";
                return Err(CniError::new(code::UNSUPPORTED_FIELD, msg).details(why));
            }
        }
    }
    let from_args = args.split(';').find_map(|pair| pair.strip_prefix("IP="));
    from_args
        .map(|text| address("CNI_ARGS IP", text))
        .transpose()
}

fn address(key: &str, text: &str) -> Result<Ipv6Addr, CniError> {
    let (address, length) = text.split_once('/').unwrap_or((text, "128"));
    let error = |why: &str| CniError::new(code::INVALID_CONFIG, format!("`{key}`: `{text}` {why}"));
    let address = address
        .parse()
        .ok()
        .ok_or_else(|| error("is no IPv6 address"))?;
    if length != "128" {
        return Err(error(
            "must have the prefix length 128 or none: a pod holds one address",
        ));
    }
    Ok(address)
}
