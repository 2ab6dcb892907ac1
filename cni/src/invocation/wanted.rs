//! Requested addresses, MAC, limits and ports, from three places in the order of CNI's conventions. Pure.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::arguments::Arguments;
use super::ports::port_mappings;
use super::supported::is_empty;
use crate::error::{CniError, code};
use crate::message::{Bandwidth, Rate, Wanted};

/// The capabilities `ips`, `mac`, `bandwidth` and `portMappings`: each from `runtimeConfig`, else from `args.cni`, else from
/// `CNI_ARGS`. A cohort stands in `runtimeConfig` only, to which a kubelet adds nothing but capabilities.
pub(super) fn wanted(conf: &Map<String, Value>, args: &str) -> Result<Wanted, CniError> {
    let arguments = Arguments::parse(args)?;
    let find = |parent: &[&str], key: &str| {
        let mut found = conf.get(parent[0])?;
        for key in parent[1..].iter().copied().chain([key]) {
            found = found.get(key)?;
        }
        Some(found).filter(|value| !value.is_null())
    };
    let (runtime, labels) = (["runtimeConfig"], ["args", "cni"]);
    let mut wanted = Wanted {
        pod: arguments.pod(),
        ..Wanted::default()
    };
    if let Some(cohort) = find(&runtime, "cohort") {
        wanted.cohort = Some(cohort_number(cohort)?);
    }
    if let Some(ports) = find(&runtime, "portMappings") {
        wanted.ports = port_mappings(ports)?;
    }
    if let Some(bandwidth) = find(&runtime, "bandwidth") {
        wanted.bandwidth = parse_bandwidth(bandwidth)?;
    }
    for (place, parent) in [("runtimeConfig", &runtime[..]), ("args.cni", &labels)] {
        if let Some(list) = find(parent, "ips").filter(|_| wanted.addresses.is_empty()) {
            wanted.addresses = addresses(&format!("{place}.ips"), list)?;
        }
        if let Some(mac) = find(parent, "mac").filter(|_| wanted.mac.is_none()) {
            let key = format!("{place}.mac");
            let text = mac
                .as_str()
                .ok_or_else(|| decode(&key, mac, "is not a string"))?;
            wanted.mac = mac_if_any(&key, text)?;
        }
    }
    if let Some(text) = arguments.ip.filter(|_| wanted.addresses.is_empty()) {
        wanted.addresses = vec![address("CNI_ARGS IP", text)?];
    }
    if let Some(text) = arguments.mac.filter(|_| wanted.mac.is_none()) {
        wanted.mac = mac_if_any("CNI_ARGS MAC", text)?;
    }
    Ok(wanted)
}

fn cohort_number(cohort: &Value) -> Result<u32, CniError> {
    let number = cohort
        .as_u64()
        .and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| {
        decode(
            "runtimeConfig.cohort",
            cohort,
            "is not the number of a cohort",
        )
    })
}

fn addresses(key: &str, list: &Value) -> Result<Vec<IpAddr>, CniError> {
    let texts: Option<Vec<_>> = list
        .as_array()
        .and_then(|list| list.iter().map(Value::as_str).collect());
    let texts = texts.ok_or_else(|| decode(key, list, "is not a list of strings"))?;
    let addresses: Vec<_> = texts
        .into_iter()
        .map(|text| address(key, text))
        .collect::<Result<_, _>>()?;
    let ipv4 = addresses.iter().filter(|a| a.is_ipv4()).count();
    if ipv4 > 1 || addresses.len() - ipv4 > 1 {
        return Err(
            CniError::unsupported(key, list).details("a pod has one address of each family")
        );
    }
    Ok(addresses)
}

fn address(key: &str, text: &str) -> Result<IpAddr, CniError> {
    let error = |why: &str| CniError::invalid_config(format!("`{key}`: `{text}` {why}"));
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr = address
        .parse()
        .ok()
        .ok_or_else(|| error("is not an IP address"))?;
    let full_length = match address {
        IpAddr::V4(_) => "32",
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            return Err(error("is an IPv4-mapped IPv6 address; write it as IPv4"));
        }
        IpAddr::V6(_) => "128",
    };
    if length.is_some_and(|length| length != full_length) {
        let why = format!(
            "must have the prefix length {full_length} or none: a pod has a single address"
        );
        return Err(error(&why));
    }
    Ok(address)
}

/// CNI's conventions separate octets by colons; Go's `ParseMAC`, which other plugins use, accepts dashes too.
fn mac_if_any(key: &str, text: &str) -> Result<Option<[u8; 6]>, CniError> {
    if text.is_empty() {
        return Ok(None);
    }
    let error = |why: &str| CniError::invalid_config(format!("`{key}`: `{text}` {why}"));
    let octets: Option<Vec<u8>> = text
        .split([':', '-'])
        .map(|octet| {
            u8::from_str_radix(octet, 16)
                .ok()
                .filter(|_| octet.len() == 2)
        })
        .collect();
    let mac: [u8; 6] = octets
        .and_then(|octets| octets.try_into().ok())
        .ok_or_else(|| error("is not a link-layer address of six octets"))?;
    if mac[0] & 1 == 1 || mac == [0; 6] {
        return Err(error("is not a unicast address"));
    }
    Ok(Some(mac))
}

/// Keys of the capability `bandwidth`, in bits per second and in bits. Containerd capitalises them: Go ignores the case of keys.
const LIMITS: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];

fn parse_bandwidth(value: &Value) -> Result<Option<Bandwidth>, CniError> {
    let whole = "runtimeConfig.bandwidth";
    let limits = value
        .as_object()
        .ok_or_else(|| decode(whole, value, "is not an object"))?;
    let is_limit = |key: &str| LIMITS.iter().any(|limit| limit.eq_ignore_ascii_case(key));
    let is_unknown = |key: &str, value| !is_limit(key) && !is_empty(value);
    if let Some((key, value)) = limits.iter().find(|(key, value)| is_unknown(key, value)) {
        let fix = "the limits apply to all of the pod's traffic";
        return Err(CniError::unsupported(&format!("{whole}.{key}"), value).details(fix));
    }
    let bandwidth = Bandwidth {
        ingress: rate(limits, "ingress")?,
        egress: rate(limits, "egress")?,
    };
    let limits = bandwidth.ingress.or(bandwidth.egress);
    Ok(limits.map(|_| bandwidth))
}

/// A rate needs its burst and the reverse; 0 counts as absent.
fn rate(limits: &Map<String, Value>, direction: &str) -> Result<Option<Rate>, CniError> {
    let number = |what: &str| {
        let key = format!("{direction}{what}");
        let found = limits
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(&key));
        match found {
            None | Some((_, Value::Null)) => Ok((key, 0)),
            Some((_, number)) => {
                let why = "is not a number of bits";
                let full = format!("runtimeConfig.bandwidth.{key}");
                let number = number.as_u64().ok_or_else(|| decode(&full, number, why))?;
                Ok((key, number))
            }
        }
    };
    let ((rate_key, rate), (burst_key, burst)) = (number("Rate")?, number("Burst")?);
    match (rate, burst) {
        (0, 0) => Ok(None),
        (0, _) | (_, 0) => Err(CniError::invalid_config(format!(
            "`runtimeConfig.bandwidth` has {rate_key} {rate} and {burst_key} {burst}: a limit needs both"
        ))),
        _ => Ok(Some(Rate {
            bits_per_second: rate,
            burst_bits: burst,
        })),
    }
}

fn decode(key: &str, value: &Value, why: &str) -> CniError {
    CniError::new(code::DECODE, format!("`{key}` {why}: {value}"))
}
