//! Reads an EndpointSlice: which addresses, in which condition, behind which ports of which service.

mod mark;

use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::{self as discovery, EndpointSlice};

use crate::address::{Family, parse_address};
use crate::key::{Protocol, ServiceKey};
use crate::problem::{Faults, Problem};

pub use mark::Mark;

/// Names the Service that a slice belongs to.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// A slice with this label, whatever its value, is for no proxy.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Endpoints are compared with so many of the newest lists of zones: more differ only in hostile slices, which then
/// cost memory, not time.
const ZONE_LISTS_COMPARED_MAX: usize = 64;

/// What is known of an endpoint, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State(u8);

impl State {
    /// It may be used.
    pub const READY: Self = Self(1);
    /// It answers, ready or not.
    pub const SERVING: Self = Self(1 << 1);
    /// It is about to go.
    pub const TERMINATING: Self = Self(1 << 2);
    /// It runs on this node.
    pub const LOCAL: Self = Self(1 << 3);
    /// It is meant for the clients of certain nodes.
    pub const NODE_HINTED: Self = Self(1 << 4);
    /// It is meant for the clients of this node.
    pub const NODE_HERE: Self = Self(1 << 5);
    /// It is meant for the clients of certain zones.
    pub const ZONE_HINTED: Self = Self(1 << 6);
    /// It is meant for the clients of this node's zone.
    pub const ZONE_HERE: Self = Self(1 << 7);

    /// With this bit, if `set`.
    #[must_use]
    pub fn with(self, bit: Self, set: bool) -> Self {
        if set { Self(self.0 | bit.0) } else { self }
    }

    /// Whether it has the bit.
    pub fn has(self, bit: Self) -> bool {
        self.0 & bit.0 != 0
    }

    /// Not ready, but the last resort: it still answers, and is about to go.
    pub fn is_fallback(self) -> bool {
        !self.has(Self::READY) && self.has(Self::SERVING) && self.has(Self::TERMINATING)
    }
}

/// One address of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Where it is.
    pub address: IpAddr,
    /// All but the hints for zones, which depend on the node's zone.
    pub state: State,
    /// Its place in [`Slice::zones`], counted from 1; 0: no hints for zones.
    zones: u32,
}

/// One port of a slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicePort {
    /// The service port's name; empty if it has none.
    pub name: Box<str>,
    /// The service port's protocol.
    pub protocol: Protocol,
    /// Where the endpoints listen.
    pub number: u16,
}

/// An EndpointSlice as far as a node uses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The family of its addresses.
    pub family: Family,
    /// The ports that count.
    pub ports: Vec<SlicePort>,
    /// The endpoints that count, in the slice's order.
    pub endpoints: Vec<Endpoint>,
    /// The different lists of zones that its endpoints are meant for.
    zones: Vec<Vec<Box<str>>>,
}

impl Slice {
    /// Whether some endpoint is meant for certain zones.
    pub fn has_zone_hints(&self) -> bool {
        !self.zones.is_empty()
    }

    /// Whether it has an endpoint for a UDP port.
    pub fn has_udp(&self) -> bool {
        let mut ports = self.ports.iter();
        !self.endpoints.is_empty() && ports.any(|port| port.protocol == Protocol::Udp)
    }

    /// The endpoints, each with what its hints mean in this zone.
    pub fn endpoints_in(&self, zone: Option<&str>) -> impl Iterator<Item = (IpAddr, State)> {
        let here = |list: &Vec<Box<str>>| list.iter().any(|name| Some(&**name) == zone);
        let here: Vec<bool> = self.zones.iter().map(here).collect();
        self.endpoints.iter().map(move |endpoint| {
            let list = (endpoint.zones as usize).checked_sub(1);
            let hinted = list.and_then(|list| here.get(list)).copied();
            let state = endpoint.state.with(State::ZONE_HINTED, hinted.is_some());
            (
                endpoint.address,
                state.with(State::ZONE_HERE, hinted == Some(true)),
            )
        })
    }
}

/// The namespace and the name of a slice, if it has both.
pub(crate) fn names(slice: &EndpointSlice) -> Option<(&str, &str)> {
    let meta = &slice.metadata;
    meta.namespace.as_deref().zip(meta.name.as_deref())
}

/// The service that a slice belongs to; none if no node looks at it.
pub(crate) fn owner(namespace: &str, slice: &EndpointSlice) -> Option<ServiceKey> {
    let labels = slice.metadata.labels.as_ref()?;
    let service = labels.get(SERVICE_LABEL).filter(|name| !name.is_empty())?;
    let headless = labels.contains_key(HEADLESS_LABEL);
    (!headless).then(|| ServiceKey::new(namespace, service))
}

/// Reads a slice for the node of that name; none if its addresses are of neither family.
pub fn read(node: &str, slice: &EndpointSlice) -> (Option<Slice>, Vec<Problem>) {
    let meta = &slice.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let name = meta.name.as_deref().unwrap_or_default();
    let mut faults = Faults::of("EndpointSlice", namespace, name);
    let Some(family) = Family::named(&slice.address_type) else {
        return (None, faults.found());
    };
    let mut read = Slice {
        family,
        ports: ports(slice, &mut faults),
        endpoints: Vec::new(),
        zones: Vec::new(),
    };
    for endpoint in slice.endpoints.iter().flatten() {
        read.push(node, endpoint, &mut faults);
    }
    (Some(read), faults.found())
}

fn ports(slice: &EndpointSlice, faults: &mut Faults<'_>) -> Vec<SlicePort> {
    let mut read = Vec::new();
    for port in slice.ports.iter().flatten() {
        // A port without a name or a number is for other readers.
        let (Some(name), Some(number)) = (&port.name, port.port.filter(|number| *number != 0))
        else {
            continue;
        };
        let protocol = Protocol::named(port.protocol.as_deref());
        let protocol_name = port.protocol.as_deref().unwrap_or_default();
        let protocol = faults.read("ports[].protocol", protocol_name, protocol);
        let valid = u16::try_from(number).ok();
        let number = faults.read("ports[].port", &number.to_string(), valid);
        if let (Some(protocol), Some(number)) = (protocol, number) {
            read.push(SlicePort {
                name: name.as_str().into(),
                protocol,
                number,
            });
        }
    }
    read
}

impl Slice {
    fn push(&mut self, node: &str, endpoint: &discovery::Endpoint, faults: &mut Faults<'_>) {
        let Some(text) = endpoint.addresses.first() else {
            return;
        };
        let address = parse_address(text).filter(|address| Family::of(*address) == self.family);
        let Some(address) = faults.read("endpoints[].addresses[0]", text, address) else {
            return;
        };
        let state = state(node, endpoint);
        let zones = self.zones_of(endpoint);
        self.endpoints.push(Endpoint {
            address,
            state,
            zones,
        });
    }

    /// The place of the endpoint's zones among the slice's different lists.
    fn zones_of(&mut self, endpoint: &discovery::Endpoint) -> u32 {
        let hints = endpoint.hints.as_ref();
        let zones = hints
            .and_then(|hints| hints.for_zones.as_deref())
            .unwrap_or_default();
        if zones.is_empty() {
            return 0;
        }
        let names = || zones.iter().map(|zone| zone.name.as_str());
        let first = self.zones.len().saturating_sub(ZONE_LISTS_COMPARED_MAX);
        let mut known = self.zones.iter().skip(first);
        let found = known.position(|list| list.iter().map(|name| &**name).eq(names()));
        let index = found.map_or(self.zones.len(), |place| first + place);
        if index == self.zones.len() {
            self.zones.push(names().map(Box::from).collect());
        }
        u32::try_from(index + 1).unwrap_or(0)
    }
}

fn state(node: &str, endpoint: &discovery::Endpoint) -> State {
    let conditions = endpoint.conditions.as_ref();
    let condition = |read: fn(&discovery::EndpointConditions) -> Option<bool>, absent: bool| {
        conditions.and_then(read).unwrap_or(absent)
    };
    let hints = endpoint.hints.as_ref();
    let nodes = hints
        .and_then(|hints| hints.for_nodes.as_deref())
        .unwrap_or_default();
    State::default()
        .with(State::READY, condition(|conditions| conditions.ready, true))
        .with(
            State::SERVING,
            condition(|conditions| conditions.serving, true),
        )
        .with(
            State::TERMINATING,
            condition(|conditions| conditions.terminating, false),
        )
        .with(State::LOCAL, endpoint.node_name.as_deref() == Some(node))
        .with(State::NODE_HINTED, !nodes.is_empty())
        .with(State::NODE_HERE, nodes.iter().any(|hint| hint.name == node))
}
