//! Rules of kube-proxy and of others, written by hand, in the namespace in which the test runs its commands.

use std::io::Write;
use std::process::{Command, Stdio};

/// The kinds of iptables in both families.
pub(crate) const KINDS: [&str; 4] = [
    "iptables-nft",
    "ip6tables-nft",
    "iptables-legacy",
    "ip6tables-legacy",
];

/// Rules of other programs, in the tables that kube-proxy uses: some look like its own.
pub(crate) const FOREIGN: &str = "\
*nat
:MINE - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-NWPLCY-ABCDEFGHIJKLMNOP - [0:0]
-A PREROUTING -m comment --comment \"not -j KUBE-SERVICES\" -j MINE
-A POSTROUTING -o eth7 -j MASQUERADE
-A MINE -p tcp -m tcp --dport 7 -j RETURN
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
-A FORWARD -i eth7 -j ACCEPT
-A INPUT -j KUBE-FIREWALL
COMMIT
*mangle
:KUBE-IPTABLES-HINT - [0:0]
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
COMMIT
";

/// kube-proxy's rules of mode iptables for one Service, with these addresses.
pub(crate) fn kube_proxys(vip: &str, backend: &str) -> String {
    let to = if backend.contains(':') {
        format!("[{backend}]:8080")
    } else {
        format!("{backend}:8080")
    };
    format!(
        "\
*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-I INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-I INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS
-I FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-I FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SEP-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-ABCDEFGHIJKLMNO2 - [0:0]
-I PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-I OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-I POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully
-A KUBE-SERVICES -d {vip} -p tcp -m comment --comment \"shop/s1:p cluster IP\" -m tcp --dport 80 -j KUBE-SVC-ABCDEFGHIJKLMNO2
-A KUBE-SVC-ABCDEFGHIJKLMNO2 -p tcp -m comment --comment \"shop/s1:p cluster IP\" -j KUBE-MARK-MASQ
-A KUBE-SVC-ABCDEFGHIJKLMNO2 -m comment --comment \"shop/s1:p -> {to}\" -j KUBE-SEP-ABCDEFGHIJKLMNOP
-A KUBE-SEP-ABCDEFGHIJKLMNOP -p tcp -m comment --comment shop/s1:p -m tcp -j DNAT --to-destination {to}
COMMIT
"
    )
}

/// The rules as `iptables-save` writes them, without what changes from run to run; none if this kind does not work here.
pub(crate) fn saved(kind: &str) -> Option<String> {
    let output = Command::new(format!("{kind}-save")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.map(|line| match line.split_once(" [") {
        Some((start, _)) if line.starts_with(':') => start.to_owned(),
        _ => line.to_owned(),
    });
    output
        .status
        .success()
        .then(|| lines.map(|line| line + "\n").collect())
}

/// Adds rules. Returns whether this kind of iptables works here.
pub(crate) fn add(kind: &str, rules: &str) -> bool {
    let mut command = Command::new(format!("{kind}-restore"));
    let command = command
        .arg("--noflush")
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(rules.as_bytes())
        .unwrap();
    child.wait().unwrap().success()
}

/// Runs nft.
pub(crate) fn nft(arguments: &str) -> String {
    let output = Command::new("nft")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
