//! The rules of kube-proxy's mode `iptables` for ClusterIP Services. Pure.

use std::fmt::{self, Write as _};
use std::net::SocketAddrV6;

use super::services::{NAMESPACE, SERVICE_PORT, Service, Services};

/// The cluster's pod range: connections from outside it are masqueraded.
const CLUSTER: &str = "2001:db8:d0::/64";
/// kube-proxy's fixed chains and the jumps to them, without node ports, external addresses and firewalls.
const FILTER: &str = "\
*filter
:KUBE-NODEPORTS - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
";
const NAT_CHAINS: &str = "\
*nat
:KUBE-NODEPORTS - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
";
const NAT_RULES: &str = "\
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
";
/// kube-proxy's last rule of the chain.
const NODE_PORTS: &str = "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the \
    last rule in this chain\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n";

/// The input of `ip6tables-restore`.
pub(super) fn rules(services: &Services) -> String {
    let mut text = FILTER.to_owned() + NAT_CHAINS;
    // Writing to a string cannot fail.
    let _ = write_services(&mut text, &services.all);
    text.push_str("COMMIT\n");
    text
}

fn write_services(text: &mut String, services: &[Service]) -> fmt::Result {
    for (number, service) in services.iter().enumerate() {
        writeln!(text, ":{} - [0:0]", chain(number))?;
        for which in 0..service.backends.len() {
            writeln!(text, ":{} - [0:0]", backend_chain(number, which))?;
        }
    }
    text.push_str(NAT_RULES);
    for (number, service) in services.iter().enumerate() {
        writeln!(
            text,
            "-A KUBE-SERVICES -m comment --comment \"{NAMESPACE}/{}:http cluster IP\" -m tcp -p tcp -d {}/128 --dport {SERVICE_PORT} -j {}",
            service.name,
            service.vip,
            chain(number)
        )?;
    }
    text.push_str(NODE_PORTS);
    for (number, service) in services.iter().enumerate() {
        write_service(text, number, service)?;
    }
    Ok(())
}

fn write_service(text: &mut String, number: usize, service: &Service) -> fmt::Result {
    let (name, own) = (&service.name, chain(number));
    writeln!(
        text,
        "-A {own} -m comment --comment \"{NAMESPACE}/{name}:http cluster IP\" -m tcp -p tcp -d {}/128 --dport {SERVICE_PORT} ! -s {CLUSTER} -j KUBE-MARK-MASQ",
        service.vip
    )?;
    for (which, backend) in service.backends.iter().enumerate() {
        let target = backend_chain(number, which);
        writeln!(
            text,
            "-A {own} -m comment --comment \"{NAMESPACE}/{name}:http -> {backend}\"{} -j {target}",
            probability(service.backends.len() - which)
        )?;
        write_backend(text, &target, name, *backend)?;
    }
    Ok(())
}

fn write_backend(text: &mut String, chain: &str, name: &str, backend: SocketAddrV6) -> fmt::Result {
    let comment = format!("-m comment --comment {NAMESPACE}/{name}:http");
    writeln!(
        text,
        "-A {chain} {comment} -s {}/128 -j KUBE-MARK-MASQ",
        backend.ip()
    )?;
    writeln!(
        text,
        "-A {chain} {comment} -m tcp -p tcp -j DNAT --to-destination {backend}"
    )
}

/// The match that selects the first of the remaining backends with equal probability; the last needs none.
fn probability(left: usize) -> String {
    if left < 2 {
        return String::new();
    }
    let probability = 1.0 / left as f64;
    format!(" -m statistic --mode random --probability {probability:.10}")
}

/// A name as long as kube-proxy's: a prefix and 16 characters of a hash.
fn chain(number: usize) -> String {
    format!("KUBE-SVC-{number:016}")
}

fn backend_chain(number: usize, which: usize) -> String {
    format!("KUBE-SEP-{number:012}X{which:03}")
}

#[cfg(test)]
mod tests {
    use super::super::services::example;
    use super::*;

    #[test]
    fn a_service_is_a_rule_in_the_common_chain_and_chains_of_its_own() {
        let text = rules(&example(4));
        let of = |start: &str| -> Vec<_> {
            let lines = text.lines().filter(|line| line.starts_with(start));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(of("-A KUBE-SERVICES").len(), 4 + 1);
        assert!(
            of("-A KUBE-SERVICES")[2].ends_with(
                "-m tcp -p tcp -d fd00:20::3/128 --dport 80 -j KUBE-SVC-0000000000000002"
            )
        );
        let own = of("-A KUBE-SVC-0000000000000002");
        assert!(own[0].ends_with("! -s 2001:db8:d0::/64 -j KUBE-MARK-MASQ"));
        assert!(own[1].contains("--probability 0.5000000000 -j KUBE-SEP-000000000002X000"));
        assert!(own[2].ends_with("[2001:db8:d0::2:1:2]:8080\" -j KUBE-SEP-000000000002X001"));
        assert!(
            of("-A KUBE-SEP-000000000002X001")[1]
                .ends_with("-j DNAT --to-destination [2001:db8:d0::2:1:2]:8080")
        );
    }

    #[test]
    fn names_of_chains_fit_the_kernels_limit() {
        assert!(chain(9_999).len() <= 28);
        assert!(backend_chain(9_999, 1).len() <= 28);
    }
}
