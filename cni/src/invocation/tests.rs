//! Valid and invalid input of runtimes.

use std::path::PathBuf;

use serde_json::json;

use crate::message::{Bandwidth, PodName, Rate};

use super::*;

fn environment() -> Environment {
    Environment {
        container_id: "c1".into(),
        netns: "/run/netns/c1".into(),
        ifname: "eth0".into(),
        ..Environment::default()
    }
}

fn conf(more: &Value) -> Value {
    let mut conf = json!({"cniVersion": "1.1.0", "name": "pods", "type": "dormouse"});
    for (key, value) in more.as_object().unwrap() {
        conf[key] = value.clone();
    }
    conf
}

fn parse(command: Command, more: &Value) -> Result<Invocation, CniError> {
    Invocation::parse(command, environment(), conf(more).to_string().as_bytes())
}

#[track_caller]
fn refused(result: Result<Invocation, CniError>, code: u32, part: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.code, code, "{error}");
    assert!(error.msg.contains(part), "{error}");
}

#[test]
fn a_plain_add_uses_the_defaults() {
    let invocation = parse(Command::Add, &json!({})).unwrap();
    assert_eq!(invocation.network, "pods");
    assert_eq!(
        invocation.node.socket,
        PathBuf::from("/run/dormouse/agent.sock")
    );
    assert_eq!(
        invocation.node.state_dir,
        PathBuf::from("/var/lib/dormouse")
    );
    assert_eq!(invocation.wanted, Wanted::default());
    assert_eq!((invocation.valid, invocation.node.offline), (None, None));
}

#[test]
fn missing_variables_are_all_named() {
    let stdin = conf(&json!({})).to_string();
    let parse =
        |command| Invocation::parse(command, Environment::default(), stdin.as_bytes()).map(|_| ());
    let error = parse(Command::Add).unwrap_err();
    assert_eq!(error.code, 4);
    assert!(
        error
            .msg
            .ends_with("CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME"),
        "{error}"
    );
    let error = parse(Command::Del).unwrap_err();
    assert!(
        error.msg.ends_with("CNI_CONTAINERID, CNI_IFNAME"),
        "{error}"
    );
    parse(Command::Status).unwrap();
}

#[test]
fn bad_ids_and_interface_names_are_refused_by_their_variable() {
    let stdin = conf(&json!({})).to_string();
    let with = |environment| Invocation::parse(Command::Add, environment, stdin.as_bytes());
    for id in ["../x", "-a", "a b", &"a".repeat(129)] {
        refused(
            with(Environment {
                container_id: id.into(),
                ..environment()
            }),
            4,
            "CNI_CONTAINERID",
        );
    }
    for name in [".", "..", "a/b", "a:b", "a b", "sixteen-bytes-xx"] {
        refused(
            with(Environment {
                ifname: name.into(),
                ..environment()
            }),
            4,
            "CNI_IFNAME",
        );
    }
}

#[test]
fn bad_configurations_are_refused_by_their_field() {
    let parse_text = |text: &str| Invocation::parse(Command::Add, environment(), text.as_bytes());
    refused(parse_text("{"), 6, "not a JSON object");
    refused(parse_text("[]"), 6, "not a JSON object");
    refused(
        parse_text(r#"{"cniVersion":"1.1.0","type":"dormouse"}"#),
        7,
        "`name`",
    );
    refused(
        parse_text(r#"{"cniVersion":"1.1.0","name":"pods"}"#),
        7,
        "`type`",
    );
    refused(parse(Command::Add, &json!({"name": 3})), 6, "`name`");
    refused(parse(Command::Add, &json!({"name": "a b"})), 7, "`name`");
    refused(
        parse(Command::Add, &json!({"cniVersion": "2.0.0"})),
        1,
        "2.0.0",
    );
    refused(
        parse(Command::Add, &json!({"socket": "agent.sock"})),
        7,
        "`socket`",
    );
    refused(
        parse(Command::Add, &json!({"ipMasq": true})),
        2,
        "`ipMasq` with value true",
    );
    refused(
        parse(Command::Add, &json!({"ipam": {"type": "host-local"}})),
        2,
        "`ipam`",
    );
    let ports = json!({"runtimeConfig": {"portMappings": [{"hostPort": 80}]}});
    refused(parse(Command::Add, &ports), 6, "runtimeConfig.portMappings");
    refused(parse(Command::Check, &json!({})), 7, "prevResult");
}

#[test]
fn commands_need_the_version_that_brought_them() {
    refused(
        parse(Command::Check, &json!({"cniVersion": "0.3.1"})),
        1,
        "CHECK needs cniVersion 0.4.0",
    );
    refused(
        parse(Command::Gc, &json!({"cniVersion": "1.0.0"})),
        1,
        "GC needs",
    );
    refused(
        parse(Command::Status, &json!({"cniVersion": ""})),
        1,
        "STATUS needs",
    );
}

#[test]
fn garbage_collection_refuses_a_missing_list_and_distinguishes_null_from_empty() {
    refused(
        parse(Command::Gc, &json!({})),
        7,
        "cni.dev/valid-attachments",
    );
    let key = "cni.dev/valid-attachments";
    assert_eq!(parse(Command::Gc, &json!({key: null})).unwrap().valid, None);
    assert_eq!(
        parse(Command::Gc, &json!({key: []})).unwrap().valid,
        Some(vec![])
    );
    let one = json!([{"containerID": "c1", "ifname": "eth0"}]);
    let kept = Some(vec![("c1".to_owned(), "eth0".to_owned())]);
    assert_eq!(parse(Command::Gc, &json!({key: one})).unwrap().valid, kept);
    assert_eq!(
        parse(Command::Gc, &json!({"cni.dev/attachments": one}))
            .unwrap()
            .valid,
        kept
    );
    let both = json!({key: null, "cni.dev/attachments": one});
    assert_eq!(parse(Command::Gc, &both).unwrap().valid, kept);
    refused(
        parse(Command::Gc, &json!({key: [{"containerID": "c1"}]})),
        6,
        key,
    );
}

fn wanted(args: &str, more: &Value) -> Result<Wanted, CniError> {
    let environment = Environment {
        args: args.into(),
        ..environment()
    };
    let stdin = conf(more).to_string();
    Invocation::parse(Command::Add, environment, stdin.as_bytes()).map(|i| i.wanted)
}

#[test]
fn a_cohort_is_a_number_in_runtime_config_only() {
    let asked = |cohort: Value| wanted("", &json!({"runtimeConfig": {"cohort": cohort}}));
    assert_eq!(asked(json!(5_007)).unwrap().cohort, Some(5_007));
    assert_eq!(asked(Value::Null).unwrap().cohort, None);
    for wrong in [json!("5007"), json!(-1), json!(1_u64 << 32)] {
        assert_eq!(asked(wrong).unwrap_err().code, 6);
    }
    let elsewhere = json!({"args": {"cni": {"cohort": 5_007}}});
    assert_eq!(wanted("", &elsewhere).unwrap().cohort, None);
}

#[test]
fn options_are_taken_from_the_first_place_that_has_them() {
    let place = |address: &str, mac: &str| json!({"ips": [address], "mac": mac});
    let runtime = place("2001:DB8:0:0::10/128", "02:00:00:00:00:10");
    let labels = json!({"cni": place("2001:db8::11", "02-00-00-00-00-11")});
    let args = "IgnoreUnknown=1;IP=2001:db8::12;MAC=02:00:00:00:00:12;K8S_POD_NAME=a";
    for (more, last) in [
        (json!({"runtimeConfig": runtime, "args": labels}), 0x10),
        (
            json!({"runtimeConfig": {"ips": [], "mac": ""}, "args": labels}),
            0x11,
        ),
        (json!({"args": {"cni": {}}}), 0x12),
    ] {
        let wanted = wanted(args, &more).unwrap();
        let address: std::net::Ipv6Addr = format!("2001:db8::{last:x}").parse().unwrap();
        assert_eq!(wanted.addresses, [address]);
        assert_eq!(wanted.mac, Some([2, 0, 0, 0, 0, last]));
        assert_eq!(wanted.pod, None, "a pod has a namespace too");
    }
    let both = json!({"runtimeConfig": {"ips": ["10.0.0.7/32", "2001:db8::10"]}});
    assert_eq!(wanted("", &both).unwrap().addresses.len(), 2);
    let pod = wanted("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web", &json!({}))
        .unwrap()
        .pod;
    let (namespace, name) = ("shop".to_owned(), "web".to_owned());
    assert_eq!(
        pod,
        Some(PodName {
            namespace,
            name,
            uid: None
        })
    );
}

#[test]
fn invalid_options_are_refused_by_key_and_value() {
    for (runtime, code, parts) in [
        (json!({"ips": ["10.0.0.1/24"]}), 7, ["ips", "10.0.0.1/24"]),
        (
            json!({"ips": ["::ffff:10.0.0.1"]}),
            7,
            ["ips", "::ffff:10.0.0.1"],
        ),
        (
            json!({"ips": ["2001:db8::10/64"]}),
            7,
            ["ips", "2001:db8::10/64"],
        ),
        (json!({"ips": ["a"]}), 7, ["ips", "`a`"]),
        (json!({"ips": ["::10", "::11"]}), 2, ["ips", "::11"]),
        (json!({"ips": "::10"}), 6, ["ips", "::10"]),
        (json!({"mac": 3}), 6, ["mac", "3"]),
        (
            json!({"mac": "02:00:00:00:00"}),
            7,
            ["mac", "02:00:00:00:00"],
        ),
        (json!({"mac": "01:00:00:00:00:01"}), 7, ["mac", "unicast"]),
        (json!({"mac": "00:00:00:00:00:00"}), 7, ["mac", "unicast"]),
        (json!({"mac": "2:0:0:0:0:1"}), 7, ["mac", "2:0:0:0:0:1"]),
        (
            json!({"bandwidth": {"ingressRate": 8}}),
            7,
            ["ingressRate 8", "ingressBurst 0"],
        ),
        (
            json!({"bandwidth": {"egressBurst": -1}}),
            6,
            ["egressBurst", "-1"],
        ),
        (
            json!({"ipRanges": [[{}]]}),
            2,
            ["runtimeConfig.ipRanges", "[[{}]]"],
        ),
        (
            json!({"deviceID": "0000:00:1f.6"}),
            2,
            ["deviceID", "0000:00:1f.6"],
        ),
        (
            json!({"aliases": {"pods": ["web"]}}),
            2,
            ["runtimeConfig.aliases", "web"],
        ),
        (
            json!({"x-vendor": {"a": 1}}),
            2,
            ["runtimeConfig.x-vendor", r#"{"a":1}"#],
        ),
        (
            json!({"bandwidth": {"unshapedSubnets": ["::/0"]}}),
            2,
            ["runtimeConfig.bandwidth.unshapedSubnets", "::/0"],
        ),
        (json!({"bandwidth": 8}), 6, ["runtimeConfig.bandwidth", "8"]),
        (json!(["ips"]), 6, ["runtimeConfig", r#"["ips"]"#]),
    ] {
        let error = wanted("", &json!({"runtimeConfig": runtime})).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(parts.iter().all(|part| error.msg.contains(part)), "{error}");
    }
}

#[test]
fn empty_requests_and_descriptions_of_the_pod_are_accepted() {
    let empty = json!({
        "portMappings": [], "dns": {}, "ipRanges": null, "deviceID": "", "x-vendor": {},
        "cgroupPath": "/kubepods/pod1", "io.kubernetes.cri.pod-annotations": {"a": "b"},
    });
    let wanted = wanted("", &json!({"runtimeConfig": empty})).unwrap();
    assert_eq!(wanted, Wanted::default());
}

#[test]
fn the_shipped_configuration_asks_for_every_capability_that_is_read() {
    let text = include_str!("../../../deploy/cni/10-dormouse.conflist");
    let list: Value = serde_json::from_str(text).unwrap();
    assert_eq!(
        list["cniVersion"], "1.0.0",
        "older runtimes know none later"
    );
    assert_eq!(list["cniVersions"], json!(["1.0.0", "1.1.0"]));
    let plugin = &list["plugins"][0];
    assert_eq!(
        plugin["type"], "dormouse-cni",
        "the file name of the program"
    );
    let declared = json!({"bandwidth": true, "ips": true, "mac": true, "portMappings": true});
    assert_eq!(plugin["capabilities"], declared);
    let ports = json!({"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80}]}});
    let ports = parse(Command::Add, &ports).unwrap().wanted.ports;
    assert_eq!((ports[0].host, ports[0].pod), (80, 80));
}

#[test]
fn bandwidth_is_a_rate_and_a_burst_of_each_direction() {
    let limit = |bandwidth| wanted("", &json!({"runtimeConfig": {"bandwidth": bandwidth}}));
    let rate = |bits_per_second, burst_bits| {
        Some(Rate {
            bits_per_second,
            burst_bits,
        })
    };
    let both =
        json!({"ingressRate": 8000, "ingressBurst": 16000, "egressRate": 1, "egressBurst": 2});
    let (ingress, egress) = (rate(8_000, 16_000), rate(1, 2));
    assert_eq!(
        limit(both).unwrap().bandwidth,
        Some(Bandwidth { ingress, egress })
    );
    let by_containerd =
        json!({"IngressRate": 8000, "IngressBurst": 16000, "EgressRate": 0, "EgressBurst": 0});
    let inward = limit(by_containerd).unwrap().bandwidth.unwrap();
    assert_eq!((inward.ingress, inward.egress), (ingress, None));
    let one = json!({"egressRate": 1, "egressBurst": 2, "ingressRate": 0});
    assert_eq!(
        limit(one).unwrap().bandwidth,
        Some(Bandwidth {
            ingress: None,
            egress
        })
    );
    assert_eq!(limit(json!({})).unwrap().bandwidth, None);
}

#[test]
fn a_deletion_needs_only_the_attachments_name() {
    let broken = json!({
        "prevResult": "?", "ipMasq": true, "ipam": {"type": "gone"},
        "runtimeConfig": {"ips": ["?"], "portMappings": [{"hostPort": 80}]},
    });
    let environment = Environment {
        netns: String::new(),
        args: "?".into(),
        ..environment()
    };
    let stdin = conf(&broken).to_string();
    let del = Invocation::parse(Command::Del, environment, stdin.as_bytes()).unwrap();
    assert_eq!(del.attachment_network(), "pods");
}

#[test]
fn as_ipam_of_another_plugin_it_only_reserves_addresses() {
    let delegated = |kind: &str, ipam: Value| {
        parse(
            Command::Add,
            &json!({"type": kind, "ipam": ipam, "ipMasq": true}),
        )
    };
    for name in ["dormouse", "dormouse-cni"] {
        let options = json!({"type": name, "socket": "/run/a.sock", "fallback": "offline"});
        let invocation = delegated("bridge", options).unwrap();
        assert_eq!(
            (invocation.role, invocation.attachment_network().as_str()),
            (Role::Ipam, "pods:ipam")
        );
        assert_eq!(invocation.node.socket, PathBuf::from("/run/a.sock"));
        assert_eq!(invocation.node.offline, Some(Offline { agent: None }));
    }
    refused(
        delegated("bridge", json!({"type": "host-local"})),
        2,
        "`ipMasq`",
    );
    let own = json!({"ipam": {"type": "dormouse"}});
    assert_eq!(parse(Command::Add, &own).unwrap().role, Role::Main);
    let renamed = Environment {
        program: "mouse".into(),
        ..environment()
    };
    let stdin = conf(&json!({"type": "bridge", "ipam": {"type": "mouse"}})).to_string();
    let invocation = Invocation::parse(Command::Add, renamed, stdin.as_bytes()).unwrap();
    assert_eq!(invocation.role, Role::Ipam);
}

#[test]
fn the_fallback_is_named_or_refused() {
    let offline = |conf| parse(Command::Add, &conf).map(|i| i.node.offline);
    assert_eq!(
        offline(json!({"fallback": "none", "agent": "/a"})).unwrap(),
        None
    );
    let agent = Some(PathBuf::from("/a"));
    let here = offline(json!({"fallback": "offline", "agent": "/a"})).unwrap();
    assert_eq!(here, Some(Offline { agent }));
    let unknown = json!({"fallback": "standalone"});
    refused(
        parse(Command::Add, &unknown),
        7,
        "`fallback` must be \"offline\"",
    );
}

#[test]
fn an_error_has_the_version_of_the_configuration_if_readable() {
    assert_eq!(
        version_for_errors(br#"{"cniVersion":"0.4.0"}"#),
        SpecVersion::V0_4_0
    );
    assert_eq!(version_for_errors(b"garbage"), SpecVersion::V1_1_0);
}

proptest::proptest! {
    #[test]
    fn no_input_makes_it_panic(stdin: Vec<u8>, id: String, ifname: String) {
        let environment = Environment { container_id: id, ifname, ..environment() };
        for command in [Command::Add, Command::Gc] {
            let _ = Invocation::parse(command, environment.clone(), &stdin);
        }
    }
}
