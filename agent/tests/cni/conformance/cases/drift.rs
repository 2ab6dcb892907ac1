//! 11. CHECK finds what is broken, and bears what later plugins or the pod itself may do.

use serde_json::json;

use crate::conformance::call::Judge as _;
use crate::conformance::check::Outcome;
use crate::conformance::run::Versions::{Newest, Since};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::{Stage, addresses};
use dormouse_rig::Netns;

pub(crate) const CASES: &[Case] = &[
    case(
        "drift/the interface is gone",
        Since("0.4.0"),
        interface_gone,
    ),
    case("drift/the address is gone", Since("0.4.0"), address_gone),
    case("drift/the host's end is gone", Newest, host_end_gone),
    case("drift/the MAC has changed", Newest, mac),
    case(
        "drift/the MAC has changed, and the result says so",
        Newest,
        mac_told,
    ),
    case("drift/the interface is another", Newest, other_interface),
    case("drift/the namespace is another", Newest, other_netns),
    case("drift/no prevResult", Newest, no_previous),
    case(
        "drift/more addresses are borne",
        Since("0.4.0"),
        more_addresses,
    ),
    case(
        "drift/another default route is borne",
        Newest,
        default_route,
    ),
    case("drift/another MTU is borne", Newest, mtu),
    case("drift/more interfaces are borne", Newest, more_interfaces),
];

/// ADD, then this happens in the pod; the outcome of CHECK then.
fn after(stage: &Stage<'_>, happens: impl FnOnce(&Netns, &str, &str)) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    stage.check("a", &pod, &result).silent()?;
    let address = addresses(&result)
        .first()
        .copied()
        .unwrap_or_default()
        .to_owned();
    let host = result["interfaces"][1]["name"].as_str().unwrap_or_default();
    happens(&pod, &address, host);
    stage.check("a", &pod, &result).silent()
}

/// As before, but CHECK must find it.
fn found(stage: &Stage<'_>, happens: impl FnOnce(&Netns, &str, &str)) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    stage.check("a", &pod, &result).silent()?;
    let address = addresses(&result)
        .first()
        .copied()
        .unwrap_or_default()
        .to_owned();
    let host = result["interfaces"][1]["name"].as_str().unwrap_or_default();
    happens(&pod, &address, host);
    stage.check("a", &pod, &result).fails().map(drop)
}

fn interface_gone(stage: &mut Stage<'_>) -> Outcome {
    found(stage, |pod, _, _| {
        pod.ip("link del eth0");
    })
}

fn address_gone(stage: &mut Stage<'_>) -> Outcome {
    found(stage, |pod, address, _| {
        pod.ip(&format!("addr del {address} dev eth0"));
    })
}

fn host_end_gone(stage: &mut Stage<'_>) -> Outcome {
    let node = stage.node.netns();
    found(stage, |_, _, host| {
        node.ip(&format!("link set {host} nomaster"));
    })
}

const MAC: &str = "02:00:5e:10:20:30";

fn mac(stage: &mut Stage<'_>) -> Outcome {
    found(stage, |pod, _, _| {
        pod.ip(&format!("link set eth0 address {MAC}"));
    })
}

fn mac_told(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let mut result = stage.add("a", &pod).ok()?;
    pod.ip(&format!("link set eth0 address {MAC}"));
    result["interfaces"][2]["mac"] = json!(MAC);
    stage.check("a", &pod, &result).silent()
}

/// Same name, same address, but no way to the node.
fn other_interface(stage: &mut Stage<'_>) -> Outcome {
    found(stage, |pod, address, _| {
        pod.ip("link del eth0");
        pod.ip("link add eth0 type bridge");
        pod.ip("link set eth0 up");
        pod.ip(&format!("addr add {address} dev eth0"));
    })
}

fn other_netns(stage: &mut Stage<'_>) -> Outcome {
    let (pod, other) = (stage.pod("a"), stage.pod("b"));
    let result = stage.add("a", &pod).ok()?;
    stage.check("a", &other, &result).fails().map(drop)
}

fn no_previous(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).ok()?;
    let check = stage.check("a", &pod, &result).without("prevResult");
    check.fails_with_words(&["prevResult"])
}

fn more_addresses(stage: &mut Stage<'_>) -> Outcome {
    after(stage, |pod, _, _| {
        pod.ip("addr add 2001:db8:ffff::1/128 dev eth0 nodad");
        pod.ip("addr add 192.0.2.9/32 dev eth0");
    })
}

fn default_route(stage: &mut Stage<'_>) -> Outcome {
    after(stage, |pod, _, _| {
        pod.ip("link add vpn0 type bridge");
        pod.ip("link set vpn0 up");
        pod.ip("-6 route del default");
        pod.ip("-6 route add default dev vpn0");
    })
}

fn mtu(stage: &mut Stage<'_>) -> Outcome {
    after(stage, |pod, _, _| {
        pod.ip("link set eth0 mtu 1400");
    })
}

fn more_interfaces(stage: &mut Stage<'_>) -> Outcome {
    after(stage, |pod, _, _| {
        pod.ip("link add eth1 type bridge");
    })
}
