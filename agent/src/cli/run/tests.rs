//! The flags of `run`: which are taken, and which are refused with their names.

use clap::{CommandFactory, Parser};

use super::*;
use crate::cli::{Cli, Verb};
use crate::own_node::{GivenPrefix, PodRanges};

fn run(arguments: &[&str]) -> Run {
    let fixed = [
        "dormouse-agent",
        "run",
        "--node",
        "n1",
        "--address",
        "2001:db8::1",
    ];
    let all = fixed
        .into_iter()
        .chain(["--runtime", "none"])
        .chain(arguments.iter().copied());
    match Cli::try_parse_from(all).unwrap().verb {
        Verb::Run(run) => *run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn a_good_command_line_is_taken() {
    let run = run(&[
        "--prefix",
        "2001:db8:d0:0:0:1::/96",
        "--control",
        "http://[::1]:7443",
    ]);
    run.validate().unwrap();
    assert_eq!(bpffs(None, "n1"), PathBuf::from("/sys/fs/bpf/dormouse/n1"));
}

#[test]
fn services_come_from_one_source() {
    for (one, other) in [
        (["--manifests", "/m"], &["--api-server", "http://a:1"][..]),
        (["--manifests", "/m"], &["--kubeconfig", "/c"]),
    ] {
        let both = ["dormouse-agent", "run"].iter().chain(&one).chain(other);
        let error = Cli::try_parse_from(both).unwrap_err().to_string();
        assert!(
            error.contains(one[0]) && error.contains(other[0]),
            "{error}"
        );
    }
    let good = ["--prefix", "2001:db8:d0:0:0:1::/96"];
    for other in ["--manifests", "--kubeconfig"] {
        let both = run(&[&good[..], &[other, "/m", "--in-cluster"]].concat());
        let error = both.validate().unwrap_err().to_string();
        assert!(
            error.contains(other) && error.contains("--in-cluster"),
            "{error}"
        );
    }
    let run = run(&[&good[..], &["--api-server", "http://a:1,ftp://b"]].concat());
    let error = run.validate().unwrap_err().to_string();
    assert!(error.contains("--api-server \"ftp://b\""), "{error}");
}

#[test]
fn of_a_delegated_prefix_the_node_owns_the_first_96() {
    let given = |profile: &str, prefix: &str| {
        let run = run(&["--network-profile", profile, "--prefix", prefix]);
        run.validate()?;
        let Some(GivenPrefix::Delivered(delivered)) = run.node.given()?.prefix else {
            panic!("{prefix}");
        };
        anyhow::Ok(PodRanges::of_delivered(delivered, None).unwrap().prefix)
    };
    let own = "2001:db8:d0:0:1::/96".parse().unwrap();
    assert_eq!(given("aws", "2001:db8:d0:0:1::/80").unwrap(), own);
    assert_eq!(given("aws", "2001:db8:d0:0:1::/96").unwrap(), own);
    assert!(given("routed", "2001:db8:d0::/64").is_ok());
    for (profile, prefix) in [
        ("aws", "2001:db8:d0::/64"),
        ("gcp", "2001:db8:d0:0:1::/80"),
        ("on-link", "2001:db8:d0:0:1::/80"),
    ] {
        let error = given(profile, prefix).unwrap_err().to_string();
        assert!(
            error.contains(&format!("--network-profile {profile}")),
            "{error}"
        );
    }
}

#[test]
fn without_a_node_object_prefix_and_address_are_needed() {
    let parsed = |arguments: &[&str]| {
        let fixed = ["dormouse-agent", "run", "--node", "n1", "--runtime", "none"];
        match Cli::try_parse_from(fixed.iter().chain(arguments))
            .unwrap()
            .verb
        {
            Verb::Run(run) => run.validate(),
            other => panic!("{other:?}"),
        }
    };
    for given in [
        &[][..],
        &["--prefix", "2001:db8:d0:0:0:1::/96"],
        &["--address", "2001:db8::1"],
        &["--manifests", "/m"],
    ] {
        let error = parsed(given).unwrap_err().to_string();
        assert!(
            error.contains("--prefix") && error.contains("--api-server"),
            "{error}"
        );
    }
    parsed(&["--api-server", "http://a:1"]).unwrap();
    parsed(&["--prefix", "none", "--address4", "192.0.2.1"]).unwrap();
}

#[test]
fn a_network_that_cannot_be_handed_out_is_refused_with_the_one_that_can() {
    let arguments = ["dormouse-agent", "run", "--prefix4", "10.244.7.1/24"];
    let error = Cli::try_parse_from(arguments).unwrap_err().to_string();
    assert!(error.contains("--prefix4"), "{error}");
    assert!(error.contains("10.244.7.0/24"), "{error}");
}

#[test]
fn what_is_wrong_is_named_with_its_flag() {
    let wrong = |arguments: &[&str]| run(arguments).validate().unwrap_err().to_string();
    for name in ["n1", "ip-10-0-0-1.eu-west-1.compute.internal"] {
        check_name(name).unwrap();
    }
    for name in ["", ".", "..", "a..b", "a/b", "-a", "a.-b", "a_b"] {
        let error = check_name(name).unwrap_err().to_string();
        assert!(error.contains("--node"), "{error}");
    }
    assert!(wrong(&["--prefix", "2001:db8::/64"]).contains("--prefix"));
    let good = ["--prefix", "2001:db8:d0:0:0:1::/96"];
    assert!(wrong(&[&good[..], &["--control", "no url"]].concat()).contains("no url"));
    assert!(wrong(&[&good[..], &["--pods-max", "0"]].concat()).contains("--pods-max"));
    for name in ["10-dormouse.conf", ".conflist", "../x.conflist"] {
        let error = wrong(&[&good[..], &["--cni-conf-name", name]].concat());
        assert!(error.contains("--cni-conf-name"), "{error}");
    }
    let mut run = run(&[&good[..], &["--cni", "/nowhere"]].concat());
    run.pods.runtime = RuntimeKind::Standalone;
    assert!(run.validate().unwrap_err().to_string().contains("/nowhere"));
}

#[test]
fn the_limit_of_wakes_has_defaults_and_names_a_range_that_is_none() {
    let good = ["--prefix", "2001:db8:d0:0:0:1::/96"];
    let limits = run(&good).datapath.wakes.limits().unwrap();
    assert_eq!((limits.per_minute, limits.burst), (60, 200));
    assert!(limits.trusted.is_empty());
    let given = run(&["--trusted-proxy", "2001:db8:7::/64,192.0.2.9"]);
    let trusted = given.datapath.wakes.limits().unwrap().trusted;
    let trusted: Vec<String> = trusted.iter().map(ToString::to_string).collect();
    assert_eq!(trusted, ["2001:db8:7::/64", "192.0.2.9/32"]);
    for wrong in ["2001:db8::/129", "proxy", "::/0", "0.0.0.0/0"] {
        let run = run(&[&good[..], &["--trusted-proxy", wrong]].concat());
        let error = run.validate().unwrap_err().to_string();
        assert!(
            error.contains(&format!("--trusted-proxy {wrong}")),
            "{error}"
        );
    }
    let many = ["192.0.2.0/24"; 9].join(",");
    let run = run(&[&good[..], &["--trusted-proxy", &many]].concat());
    assert!(run.validate().is_err());
}

#[test]
fn a_source_of_the_metrics_is_a_range_or_an_address() {
    let good = ["--prefix", "2001:db8:d0:0:0:1::/96", "--metrics-from"];
    let with = |from: &str| run(&[&good[..], &[from]].concat());
    let readers = with("2001:db8:7::/64,192.0.2.7").readers().unwrap();
    assert_eq!(readers.len(), 2);
    assert_eq!(with("").readers().unwrap().len(), 0);
    let error = with("pods").validate().unwrap_err().to_string();
    assert!(error.contains("--metrics-from pods"), "{error}");
}
