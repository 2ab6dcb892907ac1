//! Only what is kube-proxy's is removed; the rules of others stay, byte for byte.

use dormouse_rig::{Node, ip, on_node};

use crate::kube_proxy::{KubeProxy, turn};
use crate::rules::{FOREIGN, KINDS, add, kube_proxys, nft, saved};

/// What `uninstall --kube-proxy-leftovers` writes.
fn uninstall(node: &Node, flags: &[&str], succeeds: bool) -> String {
    let arguments = [&["uninstall", "--kube-proxy-leftovers"], flags].concat();
    let output = node.home().command(&arguments).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let text = text.concat();
    assert_eq!(output.status.success(), succeeds, "{text}");
    text
}

/// The rules of all kinds that work, and the tables of nftables.
fn look(kinds: &[&str]) -> Vec<String> {
    let rules = kinds.iter().map(|kind| saved(kind).unwrap());
    rules
        .chain([nft("list tables"), ip("-o link show")])
        .collect()
}

fn plant(kinds: &[&str]) {
    for kind in kinds {
        let is_v6 = kind.starts_with("ip6");
        let (vip, backend) = if is_v6 {
            ("fd00:20::1", "fd00:77::1")
        } else {
            ("10.96.0.1", "10.1.0.1")
        };
        assert!(add(kind, &kube_proxys(vip, backend)), "{kind}");
    }
    for family in ["ip", "ip6"] {
        nft(&format!("add table {family} kube-proxy"));
        nft(&format!(
            "add chain {family} kube-proxy services {{ type nat hook prerouting priority -100 ; }}"
        ));
    }
    // A dummy link where kube-proxy makes it; not every kernel has that kind.
    ip("link add kube-ipvs0 type bridge");
    ip("address add fd00:20::1/128 dev kube-ipvs0");
}

/// Checks that nothing of kube-proxy is left, and all that is of others.
fn assert_only_foreign(kinds: &[&str], clean: &[String]) {
    for (kind, rules) in kinds.iter().zip(clean) {
        assert!(
            !rules.contains("KUBE-SERVICES -") && !rules.contains("-j KUBE-SVC"),
            "{rules}"
        );
        let foreign = FOREIGN.lines();
        let foreign = foreign.filter(|line| line.starts_with("-A ") || line.starts_with(':'));
        for line in foreign.map(|line| line.trim_end_matches(" [0:0]")) {
            assert!(rules.contains(line), "{kind} lacks {line}: {rules}");
        }
    }
    let tables = &clean[kinds.len()];
    let tables: Vec<&str> = tables.lines().collect();
    for (table, stays) in [
        ("table ip mine", true),
        ("table inet kube-proxy", true),
        ("table ip kube-proxy", false),
        ("table ip6 kube-proxy", false),
    ] {
        assert_eq!(tables.contains(&table), stays, "{table}: {tables:?}");
    }
}

/// Checks the list of `--dry-run`.
fn assert_listed(listed: &str) {
    for line in [
        "would remove iptables-nft, table nat: chain KUBE-SEP-ABCDEFGHIJKLMNOP",
        "would remove ip6tables-nft, table filter: rule FORWARD -m comment",
        "would remove ip6tables-nft, table mangle: chain KUBE-PROXY-CANARY",
        "would remove nftables: table ip kube-proxy",
        "would remove nftables: table ip6 kube-proxy",
        "would remove link kube-ipvs0",
    ] {
        assert!(listed.contains(line), "{line}: {listed}");
    }
    for foreign in ["MINE", "KUBELET", "NWPLCY", "KUBE-FIREWALL", "HINT", "inet"] {
        assert!(!listed.contains(foreign), "{foreign}: {listed}");
    }
}

#[test]
fn what_is_kube_proxys_is_listed_and_removed_and_the_rules_of_others_stay_byte_for_byte() {
    on_node(|node| {
        let _turn = turn();
        // The old kind is not in every kernel.
        let kinds = KINDS.into_iter().filter(|kind| add(kind, FOREIGN));
        let kinds: Vec<&str> = kinds.collect();
        assert!(kinds.contains(&"iptables-nft") && kinds.contains(&"ip6tables-nft"));
        nft("add table ip mine");
        nft("add table inet kube-proxy");
        plant(&kinds);
        let planted = look(&kinds);
        uninstall(node, &[], true);
        // All tables exist by now: what is planted and removed once more can be compared.
        let clean = look(&kinds);
        assert_only_foreign(&kinds, &clean);
        plant(&kinds);
        assert_eq!(shape(&look(&kinds)), shape(&planted));
        assert_listed(&uninstall(node, &["--dry-run"], true));
        assert_eq!(
            shape(&look(&kinds)),
            shape(&planted),
            "--dry-run changes nothing"
        );

        let running = KubeProxy::start(node.dir());
        let refused = uninstall(node, &[], false);
        assert!(
            refused.contains("kube-proxy runs") && refused.contains("--force"),
            "{refused}"
        );
        let listed = uninstall(node, &["--dry-run"], true);
        assert!(listed.contains("refused without --force"), "{listed}");
        assert_eq!(shape(&look(&kinds)), shape(&planted));
        uninstall(node, &["--force"], true);
        drop(running);
        assert_eq!(look(&kinds), clean);
        assert_eq!(uninstall(node, &[], true), "", "nothing is left");
    });
}

/// Rules without their order, and links without their numbers: both differ each time that they are made.
fn shape(all: &[String]) -> Vec<Vec<String>> {
    let sorted = all.iter().map(|text| {
        let lines = text
            .lines()
            .map(|line| line.split_once("kube-ipvs0").map_or(line, |_| "kube-ipvs0"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    });
    sorted.collect()
}
