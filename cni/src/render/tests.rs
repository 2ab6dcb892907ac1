//! One result in the form of each version, and results of earlier plugins unchanged to the byte.

use crate::error::CniError;
use std::net::IpAddr;

use crate::invocation::{Command, Environment};

use super::*;

fn link(name: &str, mac: &str) -> Link {
    Link {
        name: name.into(),
        mac: mac.into(),
    }
}

fn pod() -> Wired {
    Wired {
        bridge: link("dormouse0", "02:d0:00:00:00:01"),
        host: link("dm00010000", "02:d1:00:01:00:00"),
        pod: link("eth0", "02:d0:00:01:00:00"),
        mtu: 1500,
        address: "2001:db8::1:0".parse().unwrap(),
        gateway: "fe80::1".parse().unwrap(),
        address4: None,
        gateway4: None,
    }
}

fn invocation(version: &str, more: &str) -> Result<Invocation, CniError> {
    let environment = Environment {
        container_id: "c1".into(),
        netns: "/run/netns/c1".into(),
        ifname: "eth0".into(),
        ..Environment::default()
    };
    let stdin = format!(r#"{{"cniVersion":"{version}","name":"pods","type":"dormouse"{more}}}"#);
    Invocation::parse(Command::Add, environment, stdin.as_bytes())
}

fn text(version: &str, more: &str) -> String {
    let invocation = invocation(version, more).unwrap();
    serde_json::to_string(&wired(&invocation, &pod()).unwrap()).unwrap()
}

fn after(version: &str, previous: &str) -> String {
    text(version, &format!(r#","prevResult":{previous}"#))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_newest_result_names_interfaces_with_their_mtu() {
    assert_eq!(
        json(&text("1.1.0", r#","dns":{"nameservers":["2001:db8::53"]}"#)),
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                {"name": "dormouse0", "mac": "02:d0:00:00:00:01", "mtu": 1500},
                {"name": "dm00010000", "mac": "02:d1:00:01:00:00", "mtu": 1500},
                {"name": "eth0", "mac": "02:d0:00:01:00:00", "mtu": 1500, "sandbox": "/run/netns/c1"},
            ],
            "ips": [{"address": "2001:db8::1:0/128", "gateway": "fe80::1", "interface": 2}],
            "routes": [{"dst": "::/0", "gw": "fe80::1"}],
            "dns": {"nameservers": ["2001:db8::53"]},
        })
    );
}

#[test]
fn older_results_have_the_form_of_their_version() {
    let one = json(&text("1.0.0", ""));
    assert!(one["interfaces"][0].get("mtu").is_none());
    assert!(one["ips"][0].get("version").is_none());
    for version in ["0.3.0", "0.3.1", "0.4.0"] {
        assert_eq!(json(&text(version, ""))["ips"][0]["version"], "6");
    }
    for version in ["0.1.0", "0.2.0"] {
        assert_eq!(
            json(&text(version, "")),
            json!({
                "cniVersion": version,
                "ip6": {
                    "ip": "2001:db8::1:0/128",
                    "gateway": "fe80::1",
                    "routes": [{"dst": "::/0", "gw": "fe80::1"}],
                },
            })
        );
    }
}

#[test]
fn every_version_holds_both_families() {
    let both = Wired {
        address4: Some("10.0.0.7".parse().unwrap()),
        gateway4: Some("169.254.1.1".parse().unwrap()),
        ..pod()
    };
    let rendered = |version: &str| {
        let object = wired(&invocation(version, "").unwrap(), &both).unwrap();
        serde_json::to_value(object).unwrap()
    };
    let new = rendered("0.4.0");
    assert_eq!(
        new["ips"][1],
        json!({"address": "10.0.0.7/32", "gateway": "169.254.1.1", "interface": 2, "version": "4"})
    );
    assert_eq!(
        new["routes"][1],
        json!({"dst": "0.0.0.0/0", "gw": "169.254.1.1"})
    );
    let old = rendered("0.2.0");
    assert_eq!(old["ip4"]["ip"], "10.0.0.7/32");
    assert_eq!(
        old["ip4"]["routes"],
        json!([{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}])
    );
    assert_eq!(old["ip6"]["ip"], "2001:db8::1:0/128");
}

#[test]
fn entries_of_earlier_plugins_stay_first_and_unchanged() {
    let interface = r#"{"name":"lo","unknown":1.50e3,"mtu":65536,"pciID":""}"#;
    let previous = format!(
        r#"{{"cniVersion":"1.1.0","more":{{"z":18446744073709551616,"a" : "\u00e4"}},"interfaces":[{interface}],"ips":[{{"x":[ ],"address":"::1/128","interface":0}}],"routes":[{{"dst":"2001:db8:1::/48"}}],"dns":{{"domain":"x"}}}}"#
    );
    let result = after("1.1.0", &previous);
    for part in [
        interface,
        r#"{"x":[ ],"address":"::1/128","interface":0}"#,
        r#"[{"dst":"2001:db8:1::/48"},"#,
        r#""more":{"z":18446744073709551616,"a" : "\u00e4"}"#,
        r#""dns":{"domain":"x"}"#,
    ] {
        assert!(result.contains(part), "{part} in {result}");
    }
    let result = json(&result);
    assert_eq!(result["ips"][1]["interface"], 3);
    assert_eq!(result["interfaces"][3]["name"], "eth0");
}

#[test]
fn the_link_layer_address_is_that_of_the_interface_in_the_pod() {
    let mac = |interfaces: &str| {
        let object = serde_json::from_str(&format!(r#"{{"interfaces":[{interfaces}]}}"#)).unwrap();
        let result = AddResult::read(object, SpecVersion::V1_0_0).unwrap();
        result.mac("eth0")
    };
    let host = r#"{"name":"eth0","mac":"02:00:00:00:00:01"}"#;
    let other = r#"{"name":"eth1","mac":"02:00:00:00:00:02","sandbox":"/n"}"#;
    let pod = r#"{"name":"eth0","mac":"02:00:00:00:00:0A","sandbox":"/n"}"#;
    let without_mac = r#"{"name":"eth0","sandbox":"/n"}"#;
    assert_eq!(
        mac(&[host, other, pod].join(",")),
        Some([2, 0, 0, 0, 0, 10])
    );
    assert_eq!(mac(&[host, other, without_mac].join(",")), None);
}

#[test]
fn the_configurations_dns_is_used_if_earlier_plugins_set_none() {
    let with = |previous: &str| {
        let more = format!(r#","dns":{{"domain":"configured"}},"prevResult":{{"dns":{previous}}}"#);
        json(&text("1.0.0", &more))["dns"]["domain"].clone()
    };
    assert_eq!(with("{}"), "configured");
    assert_eq!(with(r#"{"domain":"earlier"}"#), "earlier");
}

#[test]
fn an_earlier_result_of_another_version_is_converted() {
    let old = r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0"}],"x":1},"y":2}"#;
    let new = json(&after("1.1.0", old));
    assert_eq!(
        new["ips"][0],
        json!({"address": "10.0.0.2/24", "gateway": "10.0.0.1", "x": 1})
    );
    assert_eq!(new["routes"][0], json!({"dst": "0.0.0.0/0"}));
    assert_eq!(
        (&new["y"], &new["ips"][1]["interface"]),
        (&json!(2), &json!(2))
    );
    let middle = json(&after("0.4.0", old));
    assert_eq!(middle["ips"][0]["version"], "4");
    assert_eq!(json(&after("0.2.0", old))["ip4"], json(old)["ip4"]);

    let ips = r#"[{"version":"6","address":"2001:db8:9::1/64","interface":0},{"version":"4","address":"10.0.0.2/24"}]"#;
    let previous = format!(
        r#"{{"cniVersion":"0.4.0","interfaces":[{{"name":"lo"}}],"ips":{ips},"routes":[{{"dst":"10.1.0.0/16"}}]}}"#
    );
    let new = json(&after("1.0.0", &previous));
    assert_eq!(
        new["ips"][0],
        json!({"address": "2001:db8:9::1/64", "interface": 0})
    );
    let old = json(&after("0.2.0", &previous));
    assert_eq!(old["ip6"]["ip"], "2001:db8:9::1/64", "the first of two");
    assert_eq!(
        old["ip4"],
        json!({"ip": "10.0.0.2/24", "routes": [{"dst": "10.1.0.0/16"}]})
    );
    assert!(old.get("interfaces").is_none() && old.get("ips").is_none());
}

#[test]
fn values_other_than_results_are_refused() {
    for previous in [
        r#""text""#,
        "[]",
        r#"{"ips":3}"#,
        r#"{"ips":[3]}"#,
        r#"{"interfaces":{}}"#,
    ] {
        let more = format!(r#","prevResult":{previous}"#);
        let error = invocation("1.0.0", &more).unwrap_err();
        assert_eq!(error.code, 6, "{previous}: {error}");
    }
    after("1.0.0", "null");
}

#[test]
fn addresses_of_all_plugins_are_read() {
    let previous = r#"{"ips":[{"address":"10.0.0.2/24"},{"address":"::1/128"},{"address":"?"}]}"#;
    let more = format!(r#","prevResult":{previous}"#);
    let found = invocation("1.0.0", &more).unwrap().previous.unwrap();
    let wanted: [IpAddr; 2] = ["10.0.0.2".parse().unwrap(), "::1".parse().unwrap()];
    assert_eq!(found.addresses(), wanted);
}

#[test]
fn a_reserved_address_names_no_interface() {
    let address = Reserved {
        address: "2001:db8::1:0".parse().unwrap(),
        prefix_length: 96,
        gateway: "2001:db8::1".parse().unwrap(),
        ipv4: None,
    };
    let rendered = |version: &str| {
        let object = reserved(&invocation(version, "").unwrap(), &address).unwrap();
        serde_json::to_value(object).unwrap()
    };
    let route = json!({"dst": "::/0", "gw": "2001:db8::1"});
    assert_eq!(
        rendered("1.1.0"),
        json!({
            "cniVersion": "1.1.0",
            "ips": [{"address": "2001:db8::1:0/96", "gateway": "2001:db8::1"}],
            "routes": [route],
        })
    );
    assert_eq!(rendered("0.3.1")["ips"][0]["version"], "6");
    assert_eq!(
        rendered("0.1.0")["ip6"],
        json!({"ip": "2001:db8::1:0/96", "gateway": "2001:db8::1", "routes": [route]})
    );
}
