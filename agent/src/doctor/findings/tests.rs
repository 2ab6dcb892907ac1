//! What follows from each fact, one change at a time.

use super::super::facts::{
    AgentFacts, ConflistFacts, KernelFacts, KubeProxyFacts, LinkFacts, PodFacts, StreamFacts,
    SysctlFacts,
};
use super::super::report::Level;
use super::*;
use crate::leftovers::{Found, Leftover};
use crate::profile::named;
use dormouse_agent_datapath::Attached;
use dormouse_agent_services::Prefix;

/// A node on which all is well.
fn well() -> Facts {
    Facts {
        kernel: KernelFacts {
            release: "6.18.44-amd64".to_owned(),
            has_btf: true,
            cgroup: "/sys/fs/cgroup".into(),
            has_cgroup2: true,
            has_bpffs: true,
            is_synchronized: Some(true),
        },
        uplink: "eth0".to_owned(),
        link: Some(LinkFacts {
            is_up: true,
            mtu: 1_500,
            networks: vec![Prefix::parse("2001:db8:d0::/64").unwrap()],
            has_default_route: true,
        }),
        profile: named("routed").unwrap(),
        sysctls: SysctlFacts {
            forwarding6: Some(1),
            forwarding4: Some(1),
            accept_ra: Some(2),
            rp_filter: [("eth0".to_owned(), 0), ("dormouse0".to_owned(), 2)].into(),
        },
        pods: Some(PodFacts {
            prefix: "2001:db8:7::/96".parse().unwrap(),
            delivered: "2001:db8:7::/64".parse().unwrap(),
            has_ipv4: true,
            bridge_mtu: Some(1_500),
        }),
        agent: AgentFacts::Ready,
        stream: StreamFacts::Secured,
        kube_proxy: KubeProxyFacts::default(),
        conflists: ConflistFacts {
            folder: "/etc/cni/net.d".into(),
            files: vec![("10-dormouse.conflist".to_owned(), true)],
        },
        programs: Vec::new(),
    }
}

/// The findings that are not ok after a change, each with a reason and a fix.
fn found(change: impl FnOnce(&mut Facts)) -> Vec<(&'static str, Level)> {
    let mut facts = well();
    change(&mut facts);
    let findings = examine(&facts).findings.into_iter();
    let bad = findings.filter(|finding| finding.level != Level::Ok);
    bad.map(|finding| {
        assert!(
            finding.reason.is_some() && finding.fix.is_some(),
            "{finding:?}"
        );
        (finding.check, finding.level)
    })
    .collect()
}

#[test]
fn a_node_on_which_all_is_well_has_a_line_for_each_check() {
    assert_eq!(found(|_| {}), []);
    let checks: Vec<_> = examine(&well())
        .findings
        .iter()
        .map(|finding| finding.check)
        .collect();
    let wanted = [
        "kernel",
        "btf",
        "cgroup",
        "bpffs",
        "clock",
        "uplink",
        "mtu",
        "forwarding",
        "accept_ra",
        "rp_filter",
        "programs",
        "agent",
        "control",
        "prefix",
        "delivery",
        "conflist",
        "kube-proxy",
    ];
    assert_eq!(checks, wanted);
}

#[test]
fn a_stream_of_plain_text_is_a_warning() {
    let plain = found(|facts| facts.stream = StreamFacts::Plain);
    assert_eq!(plain, [("control", Level::Warning)]);
    assert_eq!(found(|facts| facts.stream = StreamFacts::None), []);
}

#[test]
fn the_kernel_is_examined() {
    for release in ["6.5.13", "5.10.0-28-amd64", "strange"] {
        let bad = found(|facts| facts.kernel.release = release.to_owned());
        assert_eq!(bad, [("kernel", Level::Problem)], "{release}");
    }
    for release in ["6.6.0", "6.10", "7.0-rc1"] {
        assert_eq!(found(|facts| facts.kernel.release = release.to_owned()), []);
    }
    assert_eq!(
        found(|facts| facts.kernel.has_btf = false),
        [("btf", Level::Problem)]
    );
    assert_eq!(
        found(|facts| facts.kernel.has_cgroup2 = false),
        [("cgroup", Level::Problem)]
    );
    assert_eq!(
        found(|facts| facts.kernel.has_bpffs = false),
        [("bpffs", Level::Problem)]
    );
    for unknown in [None, Some(false)] {
        let bad = found(|facts| facts.kernel.is_synchronized = unknown);
        assert_eq!(bad, [("clock", Level::Warning)]);
    }
}

#[test]
fn the_uplink_and_its_mtu_are_examined() {
    fn link(facts: &mut Facts) -> &mut LinkFacts {
        facts.link.as_mut().unwrap()
    }
    assert_eq!(
        found(|facts| facts.link = None),
        [("uplink", Level::Problem)]
    );
    assert_eq!(
        found(|facts| link(facts).is_up = false),
        [("uplink", Level::Problem)]
    );
    assert_eq!(
        found(|facts| link(facts).mtu = 1_279),
        [("mtu", Level::Problem)]
    );
    let gcp = found(|facts| facts.profile = named("gcp").unwrap());
    assert_eq!(gcp, [("mtu", Level::Problem)]);
    assert_eq!(
        found(|facts| link(facts).mtu = 1_400),
        [("mtu", Level::Warning)]
    );
}

#[test]
fn settings_of_the_kernel_are_examined() {
    let off = |facts: &mut Facts| facts.sysctls.forwarding6 = Some(0);
    assert_eq!(found(off), [("forwarding", Level::Problem)]);
    let off4 = |facts: &mut Facts| facts.sysctls.forwarding4 = Some(0);
    assert_eq!(found(off4), [("forwarding", Level::Problem)]);
    // Before the first agent it is off on most machines.
    let before = found(|facts| {
        off(facts);
        facts.pods = None;
    });
    assert_eq!(before, []);
    let ignored = |facts: &mut Facts| facts.sysctls.accept_ra = Some(1);
    assert_eq!(found(ignored), [("accept_ra", Level::Warning)]);
    let lost = found(|facts| {
        ignored(facts);
        facts.link.as_mut().unwrap().has_default_route = false;
    });
    assert_eq!(lost, [("accept_ra", Level::Problem)]);
    let strict = found(|facts| {
        facts.sysctls.rp_filter.insert("eth0".to_owned(), 1);
    });
    assert_eq!(strict, [("rp_filter", Level::Warning)]);
}

#[test]
fn the_programs_of_others_are_examined() {
    let foreign = Attached {
        hook: "clsact ingress",
        name: "cil_from_netdev".to_owned(),
    };
    let bad = found(|facts| facts.programs.push(("eth0".to_owned(), foreign)));
    assert_eq!(bad, [("programs", Level::Warning)]);
}

#[test]
fn the_agent_and_its_prefix_are_examined() {
    let waits = |facts: &mut Facts| facts.agent = AgentFacts::Waiting("no podCIDRs".to_owned());
    assert_eq!(found(waits), [("agent", Level::Problem)]);
    assert_eq!(
        found(|facts| facts.agent = AgentFacts::Gone),
        [("agent", Level::Warning)]
    );
    assert_eq!(found(|facts| facts.agent = AgentFacts::Absent), []);
    let other = |facts: &mut Facts| {
        let at = "[::1]:10249".parse().unwrap();
        facts.agent = AgentFacts::Other { at, status: 404 };
    };
    assert_eq!(found(other), [("agent", Level::Warning)]);
    let on_link = |facts: &mut Facts| {
        facts.pods.as_mut().unwrap().prefix = "2001:db8:d0:0:0:1::/96".parse().unwrap();
    };
    assert_eq!(found(on_link), [("prefix", Level::Problem)]);
    let solicited = found(|facts| {
        on_link(facts);
        facts.profile = named("on-link").unwrap();
    });
    assert_eq!(solicited, []);
}

#[test]
fn the_network_configuration_that_runtimes_use_is_examined() {
    let first = |name: &str| (name.to_owned(), false);
    let other = found(|facts| facts.conflists.files.insert(0, first("05-cilium.conflist")));
    assert_eq!(other, [("conflist", Level::Warning)]);
    assert_eq!(
        found(|facts| facts.conflists.files.push(first("20-flannel.conflist"))),
        []
    );
    assert_eq!(
        found(|facts| facts.conflists.files = vec![first("10-flannel.conflist")]),
        []
    );
    assert_eq!(found(|facts| facts.conflists.files.clear()), []);
}

#[test]
fn kube_proxy_and_its_leftovers_are_examined_by_mode() {
    let runs = |facts: &mut Facts| facts.kube_proxy.processes = vec![7];
    assert_eq!(found(runs), [("kube-proxy", Level::Warning)]);
    let before = found(|facts| {
        runs(facts);
        facts.agent = AgentFacts::Absent;
    });
    assert_eq!(before, []);
    let leftovers = vec![
        Leftover::NftTable { family: "ip" },
        Leftover::NftTable { family: "ip6" },
        Leftover::Link { index: 7 },
    ];
    let left = found(|facts| facts.kube_proxy.found.leftovers = leftovers.clone());
    assert_eq!(
        left,
        [("kube-proxy", Level::Warning); 2],
        "nftables and ipvs"
    );
    // While it runs, they are not left but used.
    let used = found(|facts| {
        facts.kube_proxy.found.leftovers = leftovers;
        runs(facts);
    });
    assert_eq!(used, [("kube-proxy", Level::Warning)]);
    let unknown = Found {
        leftovers: Vec::new(),
        unknown: vec!["neither iptables nor nft is installed here".to_owned()],
    };
    let unseen = found(|facts| facts.kube_proxy.found = unknown);
    assert_eq!(unseen, [("kube-proxy", Level::Warning)]);
}
