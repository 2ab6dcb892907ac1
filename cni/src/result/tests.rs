//! Each version's form of one result.

use crate::invocation::{Command, Environment, Invocation};
use crate::message::{Link, Wired};

use super::*;

fn wired() -> Wired {
    let link = |name: &str, mac: &str| Link {
        name: name.into(),
        mac: mac.into(),
    };
    Wired {
        bridge: link("dormouse0", "02:d0:00:00:00:01"),
        host: link("dm00010000", "02:d1:00:01:00:00"),
        pod: link("eth0", "02:d0:00:01:00:00"),
        mtu: 1500,
        address: "2001:db8::1:0".parse().unwrap(),
        gateway: "fe80::1".parse().unwrap(),
    }
}

fn rendered(version: &str, more: &Value) -> Value {
    let mut conf = json!({"cniVersion": version, "name": "pods", "type": "dormouse"});
    for (key, value) in more.as_object().unwrap() {
        conf[key] = value.clone();
    }
    let environment = Environment {
        container_id: "c1".into(),
        netns: "/run/netns/c1".into(),
        ifname: "eth0".into(),
        ..Environment::default()
    };
    let stdin = conf.to_string();
    let invocation = Invocation::parse(Command::Add, environment, stdin.as_bytes()).unwrap();
    render(&invocation, &wired())
}

#[test]
fn the_newest_result_names_interfaces_with_their_mtu() {
    assert_eq!(
        rendered("1.1.0", &json!({"dns": {"nameservers": ["2001:db8::53"]}})),
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
    assert!(
        rendered("1.0.0", &json!({}))["interfaces"][0]
            .get("mtu")
            .is_none()
    );
    assert!(
        rendered("1.0.0", &json!({}))["ips"][0]
            .get("version")
            .is_none()
    );
    for version in ["0.3.0", "0.3.1", "0.4.0"] {
        assert_eq!(rendered(version, &json!({}))["ips"][0]["version"], "6");
    }
    for version in ["0.1.0", "0.2.0"] {
        assert_eq!(
            rendered(version, &json!({})),
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
fn what_earlier_plugins_said_stays_first_and_whole() {
    let previous = json!({
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "lo", "unknown": 1}],
        "ips": [{"address": "::1/128", "interface": 0}],
        "more": true,
    });
    let result = rendered("1.0.0", &json!({"prevResult": previous}));
    assert_eq!(result["interfaces"][0], json!({"name": "lo", "unknown": 1}));
    assert_eq!(
        result["ips"][0],
        json!({"address": "::1/128", "interface": 0})
    );
    assert_eq!(result["ips"][1]["interface"], 3);
    assert_eq!(result["more"], true);
    assert_eq!(
        addresses(&result),
        [
            "::1".parse::<Ipv6Addr>().unwrap(),
            "2001:db8::1:0".parse().unwrap()
        ]
    );
}
