//! The Services of every side: many without traffic, and among them the two that are measured.

use std::net::{Ipv6Addr, SocketAddrV6};

/// The range of cluster IPs.
pub(super) const SERVICE_RANGE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 0);
/// Its prefix length: 2^20 addresses.
pub(super) const SERVICE_RANGE_LEN: u8 = 108;
/// The port of each Service.
pub(super) const SERVICE_PORT: u16 = 80;
/// The namespace of each Service.
pub(super) const NAMESPACE: &str = "bench";
/// A /96 that no node has: backends of Services without traffic.
const UNUSED: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0x99, 0, 0);
/// Port of those backends.
const UNUSED_PORT: u16 = 8080;
/// Backends of each of those Services, as many as the measured one has.
const BACKENDS: u32 = 2;
/// Least number of Services: there must be others beside the measured ones.
const COUNT_MIN: u32 = 4;
/// Largest number of Services: backends must fit the /96 and Services their range.
const COUNT_MAX: u32 = 1 << 16;

/// A Service with one TCP port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Service {
    /// Its name, unique in [`NAMESPACE`].
    pub(super) name: String,
    /// Its cluster IP.
    pub(super) vip: Ipv6Addr,
    /// Its ready endpoints.
    pub(super) backends: Vec<SocketAddrV6>,
}

impl Service {
    /// Where clients connect to.
    pub(super) fn address(&self) -> SocketAddrV6 {
        SocketAddrV6::new(self.vip, SERVICE_PORT, 0, 0)
    }
}

/// The Services of one side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Services {
    /// All of them, in the order of kube-proxy's rules.
    pub(super) all: Vec<Service>,
    short: usize,
    stream: usize,
}

impl Services {
    /// `count` Services. The measured ones are in the middle, where sequential rules have average cost.
    pub(super) fn new(count: u32, short: &[SocketAddrV6], stream: SocketAddrV6) -> Self {
        let count = count.clamp(COUNT_MIN, COUNT_MAX);
        let mut all: Vec<_> = (0..count).map(without_traffic).collect();
        let middle = all.len() / 2;
        all[middle].backends = short.to_vec();
        all[middle + 1].backends = vec![stream];
        Self {
            all,
            short: middle,
            stream: middle + 1,
        }
    }

    /// The Service for short connections.
    pub(super) fn short(&self) -> &Service {
        &self.all[self.short]
    }

    /// The Service for iperf3. It has one backend, because both connections of a test must reach the same server.
    pub(super) fn stream(&self) -> &Service {
        &self.all[self.stream]
    }
}

fn without_traffic(number: u32) -> Service {
    let vip = Ipv6Addr::from_bits(SERVICE_RANGE.to_bits() | u128::from(number + 1));
    let backend = |which| {
        let suffix = u128::from(number * BACKENDS + which + 1);
        let address = Ipv6Addr::from_bits(UNUSED.to_bits() | suffix);
        SocketAddrV6::new(address, UNUSED_PORT, 0, 0)
    };
    Service {
        name: format!("service-{number}"),
        vip,
        backends: (0..BACKENDS).map(backend).collect(),
    }
}

#[cfg(test)]
pub(super) fn example(count: u32) -> Services {
    let at = |suffix, port| {
        let address = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 2, 1, suffix);
        SocketAddrV6::new(address, port, 0, 0)
    };
    Services::new(count, &[at(1, 8080), at(2, 8080)], at(1, 5201))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_service_and_every_backend_has_an_address_of_its_own() {
        let services = example(10_000).all;
        assert_eq!(services.len(), 10_000);
        let vips: BTreeSet<_> = services.iter().map(|service| service.vip).collect();
        assert_eq!(vips.len(), 10_000);
        let backends: BTreeSet<_> = services.iter().flat_map(|s| &s.backends).collect();
        assert_eq!(backends.len(), 2 * 10_000 - 1);
    }

    #[test]
    fn the_measured_services_have_real_pods_as_backends() {
        let services = example(100);
        assert_eq!(services.short().address().to_string(), "[fd00:20::33]:80");
        assert_eq!(services.short().backends.len(), 2);
        assert_eq!(
            services.stream().backends[0].to_string(),
            "[2001:db8:d0::2:1:1]:5201"
        );
    }
}
