//! What Services hold of the ranges of cluster IPs and node ports, and what a written one gets. Pure.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Range;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::pool::{Pool, Refused};
use super::range::{IpFamily, ServiceRange, ServiceRanges};
use super::{Type, has_health_port, is_headless};
use crate::FieldError;
use crate::validate::words;

/// The ports of nodes that Services get; kube-apiserver's default.
const NODE_PORTS: Range<u32> = 30_000..32_768;
/// Node ports that are given last: kube-apiserver leaves as many to users who choose.
const NODE_PORTS_CHOSEN: u32 = 86;
/// Addresses that are given last: a sixteenth of a range, within these limits, as in kube-apiserver.
const ADDRESSES_CHOSEN: (u32, u32) = (16, 256);

/// The addresses and node ports of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) node_ports: BTreeSet<u32>,
}

impl Held {
    /// What a Service has.
    pub(crate) fn of(service: &Service) -> Self {
        let Some(spec) = &service.spec else {
            return Self::default();
        };
        let addresses = spec.cluster_ips.iter().flatten();
        let ports = spec
            .ports
            .iter()
            .flatten()
            .filter_map(|port| port.node_port);
        let ports = ports.chain(spec.health_check_node_port);
        Self {
            addresses: addresses.filter_map(|text| text.parse().ok()).collect(),
            node_ports: ports.filter_map(nonzero).collect(),
        }
    }

    /// What of this is not in `other`.
    pub(crate) fn without(&self, other: &Self) -> Self {
        Self {
            addresses: &self.addresses - &other.addresses,
            node_ports: &self.node_ports - &other.node_ports,
        }
    }
}

/// The addresses and node ports of all Services.
#[derive(Debug)]
pub(crate) struct Allocator {
    addresses: Vec<(ServiceRange, Pool)>,
    node_ports: Pool,
}

impl Allocator {
    /// An allocator of which nothing is taken.
    pub(crate) fn new(ranges: &ServiceRanges) -> Self {
        let (least, most) = ADDRESSES_CHOSEN;
        let pool = |range: &ServiceRange| {
            let chosen = match range.size() {
                0..=16 => 0,
                size => (size / 16).clamp(least, most),
            };
            (*range, Pool::new(range.offsets(), chosen))
        };
        Self {
            addresses: ranges.iter().map(pool).collect(),
            node_ports: Pool::new(NODE_PORTS, NODE_PORTS_CHOSEN),
        }
    }

    /// Takes what a stored Service has. It keeps what lies outside of the ranges, which may have been others.
    pub(crate) fn adopt(&mut self, service: &Service) {
        let held = Held::of(service);
        for address in held.addresses {
            let _kept = self.take_address(address);
        }
        for port in held.node_ports {
            let _kept = self.node_ports.take(port);
        }
    }

    /// Completes a Service in place of `old`: takes the addresses and node ports that it names, and gives those that it lacks.
    /// Returns what is new; on an error nothing is taken.
    pub(crate) fn complete(
        &mut self,
        service: &mut Service,
        old: Option<&Service>,
        random: &mut impl FnMut() -> u32,
    ) -> Result<Held, Vec<FieldError>> {
        let mut taking = Taking {
            kept: old.map(Held::of).unwrap_or_default(),
            all: self,
            new: Held::default(),
            errors: Vec::new(),
            random,
        };
        if let Some(spec) = &mut service.spec {
            taking.addresses(spec);
            taking.node_ports(spec);
        }
        let (new, errors) = (taking.new, taking.errors);
        if errors.is_empty() {
            return Ok(new);
        }
        self.release(&new);
        Err(errors)
    }

    /// Frees addresses and node ports.
    pub(crate) fn release(&mut self, held: &Held) {
        for address in &held.addresses {
            for (range, pool) in &mut self.addresses {
                if let Some(offset) = range.offset_of(*address) {
                    pool.free_again(offset);
                }
            }
        }
        for port in &held.node_ports {
            self.node_ports.free_again(*port);
        }
    }

    fn take_address(&mut self, address: IpAddr) -> Result<(), Refused> {
        let mut pools = self.addresses.iter_mut();
        let found = pools.find_map(|(range, pool)| Some((range.offset_of(address)?, pool)));
        let (offset, pool) = found.ok_or(Refused::Outside)?;
        pool.take(offset)
    }

    fn draw_address(&mut self, family: IpFamily, random: u32) -> Option<IpAddr> {
        let mut pools = self.addresses.iter_mut();
        let (range, pool) = pools.find(|(range, _)| range.family() == family)?;
        pool.draw(random).map(|offset| range.address_of(offset))
    }

    fn range_of(&self, family: Option<IpFamily>) -> String {
        let ranges = self.addresses.iter().map(|(range, _)| range);
        let ranges = ranges.filter(|range| family.is_none_or(|family| range.family() == family));
        let names: Vec<String> = ranges.map(ToString::to_string).collect();
        names.join(", ")
    }
}

/// The completion of one Service.
struct Taking<'a, R> {
    all: &'a mut Allocator,
    /// What the Service had before.
    kept: Held,
    new: Held,
    errors: Vec<FieldError>,
    random: &'a mut R,
}

impl<R: FnMut() -> u32> Taking<'_, R> {
    /// Gives one cluster IP of each of the Service's families.
    fn addresses(&mut self, spec: &mut ServiceSpec) {
        if Type::of(spec) == Type::ExternalName || is_headless(spec) {
            return;
        }
        let families = spec.ip_families.iter().flatten();
        let families: Vec<IpFamily> = families.filter_map(|name| IpFamily::parse(name)).collect();
        let mut given = spec.cluster_ips.take().unwrap_or_default();
        for (index, family) in families.into_iter().enumerate() {
            match given.get(index) {
                Some(text) => self.address(index, text),
                None => given.extend(self.drawn(index, family)),
            }
        }
        spec.cluster_ip = given.first().cloned();
        spec.cluster_ips = Some(given).filter(|given| !given.is_empty());
    }

    /// Takes the address that the Service names.
    fn address(&mut self, index: usize, text: &str) {
        let Ok(address) = text.parse::<IpAddr>() else {
            return;
        };
        if self.kept.addresses.contains(&address) {
            return;
        }
        let reason = match self.all.take_address(address) {
            Ok(()) => {
                self.new.addresses.insert(address);
                return;
            }
            Err(Refused::Taken) => "provided IP is already allocated".to_owned(),
            Err(Refused::Outside) => {
                let range = self.all.range_of(Some(IpFamily::of(address)));
                format!(
                    "the provided IP ({address}) is not in the valid range. The range of valid IPs is {range}"
                )
            }
        };
        let detail = format!("failed to allocate IP {address}: {reason}");
        let field = format!("spec.clusterIPs[{index}]");
        self.errors.push(words::invalid(field, text, detail));
    }

    fn drawn(&mut self, index: usize, family: IpFamily) -> Option<String> {
        let Some(address) = self.all.draw_address(family, (self.random)()) else {
            let range = self.all.range_of(Some(family));
            let detail = format!(
                "failed to allocate a serviceIP: range is full: no address of {range} is free, delete a Service"
            );
            let field = format!("spec.clusterIPs[{index}]");
            self.errors.push(words::invalid(field, "", detail));
            return None;
        };
        self.new.addresses.insert(address);
        Some(address.to_string())
    }

    /// Gives a node port to each port, one to ports that differ in the protocol only, and one to health checks.
    fn node_ports(&mut self, spec: &mut ServiceSpec) {
        let declined = spec.allocate_load_balancer_node_ports == Some(false);
        let is_given = Type::of(spec).has_node_ports() && !declined;
        let mut ports = spec.ports.take().unwrap_or_default();
        let mut known: HashMap<i32, i32> = HashMap::new();
        for (index, port) in ports.iter_mut().enumerate() {
            let field = format!("spec.ports[{index}].nodePort");
            match port.node_port.and_then(nonzero) {
                Some(number) => self.node_port(field, number),
                None if is_given => {
                    let same = known.get(&port.port).copied();
                    port.node_port = same.or_else(|| self.drawn_port(field));
                    if port.node_port.is_none() {
                        // Nothing is free for the others either.
                        break;
                    }
                }
                None => {}
            }
            if let Some(number) = port.node_port {
                known.entry(port.port).or_insert(number);
            }
        }
        spec.ports = Some(ports).filter(|ports| !ports.is_empty());
        if has_health_port(spec) {
            let field = "spec.healthCheckNodePort".to_owned();
            match spec.health_check_node_port.and_then(nonzero) {
                Some(number) => self.node_port(field, number),
                None => spec.health_check_node_port = self.drawn_port(field),
            }
        }
    }

    /// Takes a node port that the Service names; ports of other protocols may have the same.
    fn node_port(&mut self, field: String, number: u32) {
        if self.kept.node_ports.contains(&number) || self.new.node_ports.contains(&number) {
            return;
        }
        let detail = match self.all.node_ports.take(number) {
            Ok(()) => {
                self.new.node_ports.insert(number);
                return;
            }
            Err(Refused::Taken) => "provided port is already allocated".to_owned(),
            Err(Refused::Outside) => {
                let (first, last) = (NODE_PORTS.start, NODE_PORTS.end - 1);
                format!(
                    "provided port is not in the valid range. The range of valid ports is {first}-{last}"
                )
            }
        };
        self.errors.push(words::invalid(field, number, detail));
    }

    fn drawn_port(&mut self, field: String) -> Option<i32> {
        let Some(number) = self.all.node_ports.draw((self.random)()) else {
            let detail = "failed to allocate a nodePort: range is full: delete a Service, or decline them with allocateLoadBalancerNodePorts";
            self.errors.push(words::invalid(field, 0, detail));
            return None;
        };
        self.new.node_ports.insert(number);
        i32::try_from(number).ok()
    }
}

fn nonzero(port: i32) -> Option<u32> {
    u32::try_from(port).ok().filter(|port| *port > 0)
}

#[cfg(test)]
mod tests;
