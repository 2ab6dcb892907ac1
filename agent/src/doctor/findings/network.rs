//! The uplink, its settings, and the programs of others on links.

use super::super::facts::{Facts, LinkFacts};
use super::super::report::{Finding, Level};

/// Minimum MTU of IPv6 (RFC 8200 5), in bytes.
const MTU_MIN: u32 = 1_280;
/// Values of rp_filter and accept_ra.
const STRICT: u8 = 1;
const ONLY_IF_NOT_FORWARDING: u8 = 1;

pub(super) fn examine(facts: &Facts) -> Vec<Finding> {
    let uplink = &facts.uplink;
    let mut findings = Vec::new();
    match &facts.link {
        None => {
            let found = format!("there is no interface {uplink}");
            let reason = "packets from outside are load balanced at the uplink";
            let fix =
                "give the interface of the default route with --uplink: ip -6 route show default";
            findings.push(Finding::bad(Level::Problem, "uplink", found, (reason, fix)));
        }
        Some(link) => {
            findings.push(up(uplink, link));
            findings.push(mtu(facts, link));
        }
    }
    findings.push(forwarding(facts));
    findings.extend(accept_ra(facts));
    findings.push(rp_filter(facts));
    findings.extend(programs(facts));
    findings
}

fn up(uplink: &str, link: &LinkFacts) -> Finding {
    if link.is_up {
        return Finding::ok("uplink", format!("{uplink} is up"));
    }
    let reason = "no packet enters or leaves the node by it";
    let fix = format!("ip link set {uplink} up");
    Finding::bad(
        Level::Problem,
        "uplink",
        format!("{uplink} is down"),
        (reason, fix),
    )
}

fn mtu(facts: &Facts, link: &LinkFacts) -> Finding {
    let (uplink, mtu) = (&facts.uplink, link.mtu);
    let found = format!("{uplink} has {mtu} bytes");
    if mtu < MTU_MIN {
        let reason = "IPv6 needs 1280 bytes on each link";
        let fix = format!("ip link set {uplink} mtu 1500");
        return Finding::bad(Level::Problem, "mtu", found, (reason, fix));
    }
    if let Some(delivered) = facts.profile.exceeded_by(mtu) {
        let reason = format!(
            "networks of the profile {} deliver {delivered} bytes",
            facts.profile.name
        );
        let fix = format!(
            "ip link set {uplink} mtu {delivered}, and in the configuration of the network"
        );
        return Finding::bad(Level::Problem, "mtu", found, (reason, fix));
    }
    let bridge = facts.pods.as_ref().and_then(|pods| pods.bridge_mtu);
    match bridge.filter(|bridge| *bridge > mtu) {
        Some(bridge) => {
            let reason = format!(
                "pods have {bridge} bytes: larger packets of them are answered with \"packet too big\""
            );
            let fix = "restart the agent: new pods get the uplink's MTU";
            Finding::bad(Level::Warning, "mtu", found, (reason, fix))
        }
        None => Finding::ok("mtu", found),
    }
}

/// An agent that wires pods enables it.
fn forwarding(facts: &Facts) -> Finding {
    let of = |value: Option<u8>| value.map_or("?".to_owned(), |value| value.to_string());
    let (v6, v4) = (facts.sysctls.forwarding6, facts.sysctls.forwarding4);
    let found = format!("IPv6 {}, IPv4 {}", of(v6), of(v4));
    let Some(pods) = &facts.pods else {
        return Finding::ok(
            "forwarding",
            format!("{found}; an agent enables what its pods need"),
        );
    };
    let is_off = v6 == Some(0) || pods.has_ipv4 && v4 == Some(0);
    if !is_off {
        return Finding::ok("forwarding", found);
    }
    let reason =
        "something has disabled it since the agent started: pods reach nothing outside of the node";
    let fix = "restart the agent, and find out what sets it: grep -r forward /etc/sysctl.conf /etc/sysctl.d";
    Finding::bad(Level::Problem, "forwarding", found, (reason, fix))
}

fn accept_ra(facts: &Facts) -> Option<Finding> {
    let (uplink, value) = (&facts.uplink, facts.sysctls.accept_ra?);
    let found = format!("{uplink} has {value}");
    if value != ONLY_IF_NOT_FORWARDING || facts.sysctls.forwarding6 != Some(1) {
        return Some(Finding::ok("accept_ra", found));
    }
    let reason = "a node that forwards ignores router advertisements unless it is 2: default routes learned from them end";
    let fix = format!("sysctl -w net.ipv6.conf.{uplink}.accept_ra=2");
    let has_route = facts
        .link
        .as_ref()
        .is_some_and(|link| link.has_default_route);
    let level = if has_route {
        Level::Warning
    } else {
        Level::Problem
    };
    Some(Finding::bad(level, "accept_ra", found, (reason, fix)))
}

fn rp_filter(facts: &Facts) -> Finding {
    let strict = facts
        .sysctls
        .rp_filter
        .iter()
        .filter(|(_, value)| **value == STRICT);
    let names: Vec<&str> = strict.map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        return Finding::ok(
            "rp_filter",
            "not strict on the uplink and the bridges of pods",
        );
    }
    let reason = "the kernel drops IPv4 packets whose source it would reach by another interface: replies of Services, and packets to node ports on nodes with several uplinks";
    let settings = names
        .iter()
        .map(|name| format!("net.ipv4.conf.{name}.rp_filter=2"));
    let settings: Vec<String> = settings.collect();
    let fix = format!(
        "sysctl -w {}, and the same in /etc/sysctl.d",
        settings.join(" ")
    );
    let found = format!("strict (1) on {}", names.join(", "));
    Finding::bad(Level::Warning, "rp_filter", found, (reason, fix))
}

fn programs(facts: &Facts) -> Vec<Finding> {
    if facts.programs.is_empty() {
        return vec![Finding::ok(
            "programs",
            "no BPF programs of others on the links",
        )];
    }
    let one = |(link, program): &(String, dormouse_agent_datapath::Attached)| {
        let found = format!("{} {} on {link}", program.hook, program.name);
        let reason = "a program of another data path may drop, redirect or translate packets before those of this one see them";
        let fix = format!(
            "find out whose it is (bpftool net show dev {link}), and remove that software from the node if it handles Services or pods"
        );
        Finding::bad(Level::Warning, "programs", found, (reason, fix))
    };
    facts.programs.iter().map(one).collect()
}
