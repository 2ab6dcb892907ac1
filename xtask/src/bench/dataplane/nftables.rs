//! The rules of kube-proxy's mode `nftables` for ClusterIP Services. Pure.

use std::fmt::{self, Write as _};
use std::net::SocketAddrV6;

use super::services::{NAMESPACE, SERVICE_PORT, Service, Services};

/// The cluster's pod range: connections from outside it are masqueraded.
const CLUSTER: &str = "2001:db8:d0::/64";
/// kube-proxy's fixed chains and maps, without node ports, firewalls and Services without endpoints.
const COMMON: &str = "\
  set cluster-ips { type ipv6_addr; }
  set nodeport-ips { type ipv6_addr; }
  map no-endpoint-services { type ipv6_addr . inet_proto . inet_service : verdict; }
  map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
  map firewall-ips { type ipv6_addr . inet_proto . inet_service : verdict; }
  map service-ips { type ipv6_addr . inet_proto . inet_service : verdict; }
  map service-nodeports { type inet_proto . inet_service : verdict; }
  chain reject-chain { reject; }
  chain service-endpoints-check { ip6 daddr . meta l4proto . th dport vmap @no-endpoint-services; }
  chain nodeport-endpoints-check {
    ip6 daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
  }
  chain firewall-check { ip6 daddr . meta l4proto . th dport vmap @firewall-ips; }
  chain cluster-ips-check { ip6 daddr @cluster-ips reject; }
  chain mark-for-masquerade { meta mark set meta mark or 0x4000; }
  chain masquerading {
    meta mark & 0x4000 == 0 return
    meta mark set meta mark xor 0x4000
    masquerade fully-random
  }
  chain services {
    ip6 daddr . meta l4proto . th dport vmap @service-ips
    ip6 daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
  }
  chain filter-prerouting {
    type filter hook prerouting priority -110; policy accept;
    ct state new jump firewall-check
  }
  chain filter-input {
    type filter hook input priority -110; policy accept;
    ct state new jump nodeport-endpoints-check
    ct state new jump service-endpoints-check
  }
  chain filter-forward {
    type filter hook forward priority -110; policy accept;
    ct state new jump service-endpoints-check
    ct state new jump cluster-ips-check
  }
  chain filter-output {
    type filter hook output priority -110; policy accept;
    ct state new jump service-endpoints-check
    ct state new jump firewall-check
  }
  chain filter-output-post-dnat {
    type filter hook output priority -90; policy accept;
    ct state new jump cluster-ips-check
  }
  chain nat-prerouting {
    type nat hook prerouting priority -100; policy accept;
    jump services
  }
  chain nat-output {
    type nat hook output priority -100; policy accept;
    jump services
  }
  chain nat-postrouting {
    type nat hook postrouting priority 100; policy accept;
    jump masquerading
  }
";

/// The input of `nft -f`.
pub(super) fn rules(services: &Services) -> String {
    let mut text = format!("table ip6 kube-proxy {{\n{COMMON}");
    // Writing to a string cannot fail.
    let _ = write_chains(&mut text, &services.all);
    text.push_str("}\n");
    let _ = write_elements(&mut text, &services.all);
    text
}

/// A chain must be defined before a `goto` to it.
fn write_chains(text: &mut String, services: &[Service]) -> fmt::Result {
    for (number, service) in services.iter().enumerate() {
        for backend in &service.backends {
            write_backend(text, number, service, *backend)?;
        }
        write_service(text, number, service)?;
    }
    Ok(())
}

fn write_backend(
    text: &mut String,
    number: usize,
    service: &Service,
    backend: SocketAddrV6,
) -> fmt::Result {
    writeln!(
        text,
        "  chain {} {{\n    ip6 saddr {} jump mark-for-masquerade\n    meta l4proto tcp dnat to {backend}\n  }}",
        backend_chain(number, service, backend),
        backend.ip()
    )
}

fn write_service(text: &mut String, number: usize, service: &Service) -> fmt::Result {
    writeln!(
        text,
        "  chain {} {{\n    ip6 daddr {} tcp dport {SERVICE_PORT} ip6 saddr != {CLUSTER} jump mark-for-masquerade",
        chain(number, service),
        service.vip
    )?;
    let backends = service.backends.iter().enumerate();
    let branches: Vec<_> = backends
        .map(|(which, backend)| {
            format!(
                "{which} : goto {}",
                backend_chain(number, service, *backend)
            )
        })
        .collect();
    writeln!(
        text,
        "    numgen random mod {} vmap {{ {} }}\n  }}",
        branches.len(),
        branches.join(", ")
    )
}

fn write_elements(text: &mut String, services: &[Service]) -> fmt::Result {
    for (number, service) in services.iter().enumerate() {
        writeln!(
            text,
            "add element ip6 kube-proxy cluster-ips {{ {} }}",
            service.vip
        )?;
        writeln!(
            text,
            "add element ip6 kube-proxy service-ips {{ {} . tcp . {SERVICE_PORT} : goto {} }}",
            service.vip,
            chain(number, service)
        )?;
    }
    Ok(())
}

/// A name in kube-proxy's form: a hash and the Service's port.
fn chain(number: usize, service: &Service) -> String {
    format!("service-{number:08}-{NAMESPACE}/{}/tcp/http", service.name)
}

fn backend_chain(number: usize, service: &Service, backend: SocketAddrV6) -> String {
    let address = backend.ip().to_string().replace(':', ".");
    format!(
        "endpoint-{number:08}-{NAMESPACE}/{}/tcp/http__{address}/{}",
        service.name,
        backend.port()
    )
}

#[cfg(test)]
mod tests {
    use super::super::services::example;
    use super::*;

    #[test]
    fn a_service_is_an_element_of_the_map_and_chains_of_its_own() {
        let text = rules(&example(4));
        assert_eq!(text.matches("cluster-ips {").count(), 1 + 4);
        assert!(text.contains(
            "service-ips { fd00:20::3 . tcp . 80 : goto service-00000002-bench/service-2/tcp/http }"
        ));
        assert!(text.contains("numgen random mod 2 vmap { 0 : goto endpoint-00000002-"));
        assert!(text.contains("meta l4proto tcp dnat to [2001:db8:d0::2:1:2]:8080"));
    }
}
