//! The rules of iptables as `iptables-save` writes them: which chains are kube-proxy's, and what removes them and nothing else. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;

/// kube-proxy's chains, by table. kubelet's `KUBE-FIREWALL` (filter), `KUBE-KUBELET-CANARY` and `KUBE-IPTABLES-HINT` are not among
/// them.
const CHAINS: [(&str, &[&str]); 3] = [
    (
        "nat",
        &[
            "KUBE-FIREWALL",
            "KUBE-LOAD-BALANCER",
            "KUBE-MARK-MASQ",
            "KUBE-NODE-PORT",
            "KUBE-NODEPORTS",
            "KUBE-POSTROUTING",
            "KUBE-PROXY-CANARY",
            "KUBE-SERVICES",
        ],
    ),
    (
        "filter",
        &[
            "KUBE-EXTERNAL-SERVICES",
            "KUBE-FORWARD",
            "KUBE-IPVS-FILTER",
            "KUBE-IPVS-OUT-FILTER",
            "KUBE-NODE-PORT",
            "KUBE-NODEPORTS",
            "KUBE-PROXY-CANARY",
            "KUBE-PROXY-FIREWALL",
            "KUBE-SERVICES",
            "KUBE-SOURCE-RANGES-FIREWALL",
        ],
    ),
    ("mangle", &["KUBE-PROXY-CANARY"]),
];

/// The chains of one service port or endpoint, in the table `nat`: a hash follows.
const HASHED: [&str; 6] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-EXT-",
    "KUBE-SEP-",
    "KUBE-FW-",
    "KUBE-XLB-",
];
/// Characters of the hash, which is in base 32.
const HASH_LEN: usize = 16;

/// What is kube-proxy's in one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Name of the table.
    pub name: String,
    /// The chains, sorted.
    pub chains: Vec<String>,
    /// The rules of built-in chains that jump to them, as they are appended.
    pub jumps: Vec<String>,
    /// Chains that stay because chains of other programs jump to them, sorted.
    pub used: Vec<String>,
}

impl Table {
    /// Whether nothing is to be removed.
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.jumps.is_empty()
    }

    /// The input of `iptables-restore --noflush` that removes chains and jumps, all or none: first the jumps, then the rules of all
    /// chains, so that no chain is referred to when it is deleted.
    pub fn removal(&self) -> String {
        let mut text = format!("*{}\n", self.name);
        let mut line = |line: &dyn fmt::Display| {
            // A String takes all text.
            let _ = writeln!(text, "{line}");
        };
        for chain in &self.chains {
            line(&format_args!(":{chain} - [0:0]"));
        }
        for jump in &self.jumps {
            line(&format_args!("-D {jump}"));
        }
        for chain in &self.chains {
            line(&format_args!("-X {chain}"));
        }
        line(&"COMMIT");
        text
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chains, jumps) = (self.chains.len(), self.jumps.len());
        write!(
            f,
            "{}: {chains} chains of kube-proxy, {jumps} jumps to them",
            self.name
        )
    }
}

/// The tables of a saved rule set with what is kube-proxy's in each.
pub fn tables(saved: &str) -> Vec<Table> {
    let mut tables = Vec::new();
    let mut lines = Vec::new();
    let mut name = None;
    for line in saved.lines() {
        if let Some(begun) = line.strip_prefix('*') {
            (name, lines) = (Some(begun.to_owned()), Vec::new());
        } else if line == "COMMIT" {
            tables.extend(name.take().map(|name| table(name, &lines)));
        } else {
            lines.push(line);
        }
    }
    tables
}

/// A rule: its chain, the chain it goes to, and the text that appends it.
struct Rule<'a> {
    chain: &'a str,
    target: Option<&'a str>,
    text: &'a str,
}

impl<'a> Rule<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let text = line.strip_prefix("-A ")?;
        let chain = text.split(' ').next()?;
        Some(Self {
            chain,
            target: target(text),
            text,
        })
    }
}

/// The chain that a rule jumps or goes to. A comment that contains such an option is in quotes.
fn target(text: &str) -> Option<&str> {
    // Quotes in comments are escaped by a backslash.
    let mut outside = Vec::new();
    let (mut is_quoted, mut is_escaped, mut start) = (false, false, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b' ' if !is_quoted => {
                outside.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    outside.push(&text[start..]);
    let mut pairs = outside.windows(2);
    pairs
        .find(|pair| matches!(pair[0], "-j" | "-g"))
        .map(|pair| pair[1])
}

fn table(name: String, lines: &[&str]) -> Table {
    let declared = lines.iter().filter_map(|line| {
        let (chain, policy) = line.strip_prefix(':')?.split_once(' ')?;
        Some((chain, !policy.starts_with('-')))
    });
    // By name: whether it is built in, with a policy.
    let declared: BTreeMap<&str, bool> = declared.collect();
    let rules: Vec<Rule<'_>> = lines.iter().filter_map(|line| Rule::read(line)).collect();
    let is_ours = |chain: &str| is_kube_proxys(&name, chain);
    let is_built_in = |chain: &str| declared.get(chain).copied().unwrap_or(false);
    let used = used(&rules, is_ours, is_built_in);
    let chains = declared
        .keys()
        .filter(|chain| is_ours(chain) && !used.contains(**chain));
    let chains: Vec<String> = chains.map(|chain| (*chain).to_owned()).collect();
    let jumps = rules
        .iter()
        .filter(|rule| is_built_in(rule.chain) && rule.target.is_some_and(&is_ours));
    Table {
        jumps: jumps.map(|rule| rule.text.to_owned()).collect(),
        chains,
        used: used.into_iter().map(str::to_owned).collect(),
        name,
    }
}

/// The chains of kube-proxy to which chains of other programs jump, and those that these need.
fn used<'a>(
    rules: &[Rule<'a>],
    is_ours: impl Fn(&str) -> bool,
    is_built_in: impl Fn(&str) -> bool,
) -> BTreeSet<&'a str> {
    let is_foreign = |rule: &&Rule<'_>| !is_ours(rule.chain) && !is_built_in(rule.chain);
    let own_target = |rule: &Rule<'a>| rule.target.filter(|target| is_ours(target));
    let mut open: Vec<&str> = rules
        .iter()
        .filter(is_foreign)
        .filter_map(own_target)
        .collect();
    let mut used = BTreeSet::new();
    while let Some(chain) = open.pop() {
        if used.insert(chain) {
            let inside = rules.iter().filter(|rule| rule.chain == chain);
            open.extend(inside.filter_map(own_target));
        }
    }
    used
}

fn is_kube_proxys(table: &str, chain: &str) -> bool {
    let named = CHAINS
        .iter()
        .any(|(known, chains)| *known == table && chains.contains(&chain));
    named
        || table == "nat"
            && HASHED
                .iter()
                .any(|start| chain.strip_prefix(start).is_some_and(is_hash))
}

fn is_hash(text: &str) -> bool {
    text.len() == HASH_LEN
        && text
            .bytes()
            .all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = "\
# Generated by iptables-save v1.8.9 (nf_tables) on a day
*nat
:PREROUTING ACCEPT [12:34]
:POSTROUTING ACCEPT [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-NWPLCY-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-SEP-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-234567ABCDEFGHIJ - [0:0]
:KUBE-SVC-short - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A PREROUTING -m comment --comment \"not \\\" -j KUBE-SERVICES here\" -j CNI-HOSTPORT-DNAT
-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SEP-ABCDEFGHIJKLMNOP -s 10.1.1.1/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-ABCDEFGHIJKLMNOP -p tcp -j DNAT --to-destination 10.1.1.1:80
-A KUBE-SERVICES -d 10.96.0.7/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-234567ABCDEFGHIJ
-A KUBE-SVC-234567ABCDEFGHIJ -j KUBE-SEP-ABCDEFGHIJKLMNOP
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
-A INPUT -j KUBE-FIREWALL
-A FORWARD -j KUBE-FORWARD
COMMIT
# Completed
";

    #[test]
    fn only_what_is_kube_proxys_is_found() {
        let [nat, filter] = &tables(SAVED)[..] else {
            panic!("two tables");
        };
        assert_eq!(
            nat.chains,
            [
                "KUBE-MARK-MASQ",
                "KUBE-SEP-ABCDEFGHIJKLMNOP",
                "KUBE-SERVICES",
                "KUBE-SVC-234567ABCDEFGHIJ"
            ]
        );
        let jump =
            "PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";
        assert_eq!(nat.jumps, [jump]);
        assert_eq!(filter.chains, ["KUBE-FORWARD"]);
        assert_eq!(nat.used, [""; 0]);
        assert_eq!(tables(""), []);
    }

    #[test]
    fn jumps_are_removed_before_the_chains_in_one_step() {
        let [nat, _] = &tables(SAVED)[..] else {
            panic!("two tables");
        };
        let removal = nat.removal();
        assert!(
            removal.starts_with("*nat\n:KUBE-MARK-MASQ - [0:0]\n"),
            "{removal}"
        );
        assert!(
            removal.ends_with("-X KUBE-SVC-234567ABCDEFGHIJ\nCOMMIT\n"),
            "{removal}"
        );
        let at = |text: &str| removal.find(text).unwrap();
        assert!(at("-D PREROUTING -m comment") < at("-X KUBE-MARK-MASQ"));
    }

    #[test]
    fn a_chain_that_other_programs_use_stays_with_all_that_it_needs() {
        let saved = "\
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SEP-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-234567ABCDEFGHIJ - [0:0]
:MINE - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SEP-ABCDEFGHIJKLMNOP -j KUBE-MARK-MASQ
-A KUBE-SERVICES -j KUBE-SVC-234567ABCDEFGHIJ
-A KUBE-SVC-234567ABCDEFGHIJ -j KUBE-SEP-ABCDEFGHIJKLMNOP
-A MINE -g KUBE-SVC-234567ABCDEFGHIJ
COMMIT
";
        let [nat] = &tables(saved)[..] else {
            panic!("one table");
        };
        assert_eq!(nat.chains, ["KUBE-SERVICES"]);
        assert_eq!(
            nat.used,
            [
                "KUBE-MARK-MASQ",
                "KUBE-SEP-ABCDEFGHIJKLMNOP",
                "KUBE-SVC-234567ABCDEFGHIJ"
            ]
        );
    }
}
