//! What `doctor` finds on a node, each thing planted.

use std::fs;
use std::process::Command;

use dormouse_rig::{Agent, Node, UPLINK, ip, on_node, wait};
use serde_json::Value;

use crate::rules::{add, kube_proxys, nft};

/// The report, and whether the exit status is 0.
fn doctor(node: &Node, more: &[&str]) -> (Value, bool) {
    let networks = node.dir().join("net.d");
    let flags = [
        "doctor",
        "-o",
        "json",
        "--cni-conf-dir",
        networks.to_str().unwrap(),
    ];
    let mut command = node.home().command(&[&flags[..], more].concat());
    // Where a test names no agent, none answers.
    let output = command.env("DORMOUSE_METRICS", "[::1]:1").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
    assert_eq!(
        (&report["apiVersion"], &report["kind"]),
        (&"dormouse.dev/v1".into(), &"DoctorReport".into())
    );
    (report, output.status.success())
}

/// What a check has found, by severity.
fn found(report: &Value, check: &str, level: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let same = findings.filter(|finding| finding["check"] == check && finding["level"] == level);
    same.map(|finding| {
        let has_fix = finding["reason"].is_string() && finding["fix"].is_string();
        assert_eq!(has_fix, level != "ok", "{finding}");
        finding["found"].as_str().unwrap().to_owned()
    })
    .collect()
}

fn set(name: &str, value: &str) {
    fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
}

/// Makes what a migration meets: a strict filter, a classifier of another program, another network configuration, rules of kube-proxy.
fn plant(node: &Node) {
    set(&format!("ipv4/conf/{UPLINK}/rp_filter"), "1");
    // A program of one instruction, which lets all packets pass.
    let classifier = [
        "filter",
        "add",
        "dev",
        UPLINK,
        "ingress",
        "bpf",
        "bytecode",
        "1,6 0 0 0,",
        "flowid",
        "1:1",
    ];
    for rule in [&["qdisc", "add", "dev", UPLINK, "clsact"][..], &classifier] {
        let done = Command::new("tc").args(rule).status();
        assert!(done.unwrap().success(), "{rule:?}");
    }
    let networks = node.dir().join("net.d");
    fs::create_dir(&networks).unwrap();
    for (name, plugin) in [("05-other", "other"), ("10-dormouse", "dormouse-cni")] {
        let text = format!(r#"{{"plugins": [{{"type": "{plugin}"}}]}}"#);
        fs::write(networks.join(format!("{name}.conflist")), text).unwrap();
    }
    assert!(add(
        "ip6tables-nft",
        &kube_proxys("fd00:20::1", "fd00:77::1")
    ));
    nft("add table ip kube-proxy");
}

#[test]
fn a_machine_before_the_installation_is_well_and_what_is_planted_is_found() {
    on_node(|node| {
        let uplink = ["--uplink", UPLINK];
        set(&format!("ipv4/conf/{UPLINK}/rp_filter"), "0");
        set("ipv4/conf/all/rp_filter", "0");
        let (report, is_well) = doctor(node, &uplink);
        assert!(is_well, "{report:#}");
        assert_eq!(report["problems"], 0);
        for check in [
            "kernel",
            "btf",
            "cgroup",
            "bpffs",
            "uplink",
            "mtu",
            "forwarding",
            "rp_filter",
            "programs",
            "agent",
            "conflist",
        ] {
            assert_eq!(found(&report, check, "ok").len(), 1, "{check}: {report:#}");
        }

        plant(node);
        let (report, is_well) = doctor(node, &uplink);
        assert!(is_well, "there are only warnings: {report:#}");
        let warned = |check| found(&report, check, "warning").join("; ");
        for (check, text) in [
            ("rp_filter", UPLINK),
            ("programs", "clsact ingress bpf on eth0"),
            ("conflist", "05-other.conflist, not 10-dormouse.conflist"),
        ] {
            assert!(warned(check).contains(text), "{check}: {report:#}");
        }
        // Beside a kube-proxy that another test runs, its rules are no leftovers.
        let is_beside = !found(&report, "kube-proxy", "ok").is_empty();
        for text in ["ip6tables-nft", "table ip kube-proxy"] {
            assert!(
                is_beside || warned("kube-proxy").contains(text),
                "{report:#}"
            );
        }
    });
}

#[test]
fn an_uplink_that_is_missing_or_too_narrow_is_a_problem() {
    on_node(|node| {
        let (report, is_well) = doctor(node, &["--uplink", "eth9"]);
        assert!(!is_well);
        assert_eq!(
            found(&report, "uplink", "problem"),
            ["there is no interface eth9"]
        );
        ip(&format!("link set {UPLINK} mtu 1200"));
        let (report, is_well) = doctor(node, &["--uplink", UPLINK]);
        assert!(
            !is_well && !found(&report, "mtu", "problem").is_empty(),
            "{report:#}"
        );
    });
}

#[test]
fn a_data_path_without_an_agent_and_settings_that_were_changed_are_found() {
    on_node(|node| {
        node.take_address();
        let agent = Agent::serving(
            node.home().run().args(["--metrics", "[::1]:10249"]),
            &node.home().socket(),
        );
        wait("the agent to be ready", || {
            let (report, _) = doctor(node, &["--metrics", "[::1]:10249"]);
            !found(&report, "agent", "ok").is_empty()
        });
        // The programs of the agent are its own.
        let (report, is_well) = doctor(node, &["--metrics", "[::1]:10249"]);
        assert!(
            is_well && found(&report, "programs", "warning").is_empty(),
            "{report:#}"
        );
        assert_eq!(found(&report, "prefix", "ok").len(), 1, "{report:#}");
        agent.kill();
        set("ipv6/conf/all/forwarding", "0");
        let (report, is_well) = doctor(node, &["--network-profile", "routed"]);
        assert!(!is_well);
        assert!(
            found(&report, "agent", "warning")[0].contains("its data path serves"),
            "{report:#}"
        );
        assert_eq!(
            found(&report, "forwarding", "problem").len(),
            1,
            "{report:#}"
        );
        // The prefix is of the link's network.
        assert_eq!(found(&report, "prefix", "problem").len(), 1, "{report:#}");
        let text = node
            .home()
            .command(&["doctor", "--metrics", "[::1]:1"])
            .output()
            .unwrap();
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(
            text.contains("\nproblem  forwarding") && text.contains("fix "),
            "{text}"
        );
    });
}
