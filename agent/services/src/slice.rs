//! Parsing of an EndpointSlice: addresses with conditions and hints, and ports.

mod mark;

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{self as discovery, EndpointSlice};

use crate::address::{Family, Packed, parse_address};
use crate::few::Few;
use crate::key::Protocol;
use crate::problem::{Faults, Problem};

pub use mark::Mark;

/// The label with the name of the slice's Service.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Slices with this label are ignored by proxies.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Maximum number of zone lists that an endpoint is compared with: more different ones exist only in malicious slices, which
/// then cost memory, not time.
const ZONE_LISTS_COMPARED_MAX: usize = 64;

/// Conditions and hints of an endpoint, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State(u8);

impl State {
    /// Condition `ready`.
    pub const READY: Self = Self(1);
    /// Condition `serving`.
    pub const SERVING: Self = Self(1 << 1);
    /// Condition `terminating`.
    pub const TERMINATING: Self = Self(1 << 2);
    /// On this node.
    pub const LOCAL: Self = Self(1 << 3);
    /// Has hints for nodes.
    pub const NODE_HINTED: Self = Self(1 << 4);
    /// Hinted for this node.
    pub const NODE_HERE: Self = Self(1 << 5);
    /// Has hints for zones.
    pub const ZONE_HINTED: Self = Self(1 << 6);
    /// Hinted for this node's zone.
    pub const ZONE_HERE: Self = Self(1 << 7);

    /// Sets the bit, if `set`.
    #[must_use]
    pub fn with(self, bit: Self, set: bool) -> Self {
        if set { Self(self.0 | bit.0) } else { self }
    }

    /// Clears the bit.
    fn without(self, bit: Self) -> Self {
        Self(self.0 & !bit.0)
    }

    /// Whether the bit is set.
    pub fn has(self, bit: Self) -> bool {
        self.0 & bit.0 != 0
    }

    /// Not ready, but serving and terminating: used if no endpoint is ready.
    pub fn is_fallback(self) -> bool {
        !self.has(Self::READY) && self.has(Self::SERVING) && self.has(Self::TERMINATING)
    }
}

/// One address of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: Packed,
    pub(crate) state: State,
    /// Index in [`Slice::zones`], from 1; 0: no hints for zones.
    zones: u16,
}

/// A node may have a million of them.
const _: () = assert!(size_of::<Endpoint>() == 20);

/// The zones of an endpoint's hints.
type ZoneList = Box<[Box<str>]>;

/// The distinct zone lists of a slice that is being parsed.
#[derive(Default)]
struct ZoneLists(Vec<ZoneList>);

/// A port of a slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicePort {
    /// Name of the service port; empty if it has none.
    pub name: Arc<str>,
    /// Protocol of the service port.
    pub protocol: Protocol,
    /// Target port: the port on which the endpoints listen.
    pub number: u16,
}

/// The part of an EndpointSlice that a node needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Family of its addresses.
    pub family: Family,
    /// Its usable ports.
    pub ports: Few<SlicePort>,
    /// Its usable endpoints, sorted by address, without duplicates; shared by service ports.
    endpoints: Arc<[Endpoint]>,
    zones: Box<[ZoneList]>,
}

impl Slice {
    /// Whether any endpoint has hints for zones.
    pub fn has_zone_hints(&self) -> bool {
        !self.zones.is_empty()
    }

    /// Whether it has an endpoint for a UDP port.
    pub fn has_udp(&self) -> bool {
        let mut ports = self.ports.iter();
        !self.endpoints.is_empty() && ports.any(|port| port.protocol == Protocol::Udp)
    }

    pub(crate) fn endpoints(&self) -> &Arc<[Endpoint]> {
        &self.endpoints
    }

    /// Applies the node's zone to the zone hints.
    pub(crate) fn set_zone(&mut self, zone: Option<&str>) {
        if !self.has_zone_hints() {
            return;
        }
        let here = |list: &ZoneList| list.iter().any(|name| Some(&**name) == zone);
        let here: Vec<bool> = self.zones.iter().map(here).collect();
        let endpoints = self.endpoints.iter().map(|endpoint| {
            let list = usize::from(endpoint.zones).checked_sub(1);
            let hinted = list.and_then(|list| here.get(list)).copied();
            let state = endpoint.state.without(State::ZONE_HERE);
            Endpoint {
                state: state.with(State::ZONE_HERE, hinted == Some(true)),
                ..*endpoint
            }
        });
        self.endpoints = endpoints.collect();
    }

    /// Shares the endpoints with the previous version, if they are equal.
    pub(crate) fn follow(&mut self, before: &Self) {
        if self.endpoints == before.endpoints {
            self.endpoints = Arc::clone(&before.endpoints);
        }
    }
}

/// Namespace and name of a slice, if it has both.
pub(crate) fn names(slice: &EndpointSlice) -> Option<(&str, &str)> {
    let meta = &slice.metadata;
    meta.namespace.as_deref().zip(meta.name.as_deref())
}

/// The name of the slice's Service; none if proxies ignore the slice.
pub(crate) fn owner(slice: &EndpointSlice) -> Option<&str> {
    let labels = slice.metadata.labels.as_ref()?;
    let service = labels.get(SERVICE_LABEL).filter(|name| !name.is_empty())?;
    let headless = labels.contains_key(HEADLESS_LABEL);
    (!headless).then_some(service)
}

/// Parses a slice for the node with this name, without a zone; none if its addresses are not IP addresses.
pub fn read(node: &str, slice: &EndpointSlice) -> (Option<Slice>, Vec<Problem>) {
    let meta = &slice.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let name = meta.name.as_deref().unwrap_or_default();
    let mut faults = Faults::of("EndpointSlice", namespace, name);
    let Some(family) = Family::named(&slice.address_type) else {
        return (None, faults.found());
    };
    let ports = ports(slice, &mut faults);
    let mut zones = ZoneLists::default();
    let listed = slice.endpoints.as_deref().unwrap_or_default();
    let mut endpoints = Vec::with_capacity(listed.len());
    endpoints.extend(listed.iter().filter_map(|endpoint| {
        let address = Packed::new(address(family, endpoint, &mut faults)?);
        let zones = zones.place_of(endpoint);
        Some(Endpoint {
            address,
            state: state(node, endpoint).with(State::ZONE_HINTED, zones != 0),
            zones,
        })
    }));
    let read = Slice {
        family,
        ports,
        endpoints: unique(endpoints).into(),
        zones: zones.0.into(),
    };
    (Some(read), faults.found())
}

/// Of the same address, a non-terminating endpoint wins over a terminating one; of several such, the last.
fn unique(mut all: Vec<Endpoint>) -> Vec<Endpoint> {
    all.sort_by_key(|endpoint| endpoint.address);
    all.dedup_by(|next, kept| {
        let same = next.address == kept.address;
        if same && !next.state.has(State::TERMINATING) {
            *kept = *next;
        }
        same
    });
    all
}

fn ports(slice: &EndpointSlice, faults: &mut Faults<'_>) -> Few<SlicePort> {
    let listed = slice.ports.as_deref().unwrap_or_default();
    let mut read = Vec::with_capacity(listed.len());
    for port in listed {
        // A port without a name or a number is for other consumers.
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
    read.into()
}

fn address(
    family: Family,
    endpoint: &discovery::Endpoint,
    faults: &mut Faults<'_>,
) -> Option<IpAddr> {
    let text = endpoint.addresses.first()?;
    let address = parse_address(text).filter(|address| Family::of(*address) == family);
    faults.read("endpoints[].addresses[0]", text, address)
}

impl ZoneLists {
    /// Index of the endpoint's zones, from 1. After 65,535 different lists (a slice has a thousand endpoints at most) hints are
    /// ignored.
    fn place_of(&mut self, endpoint: &discovery::Endpoint) -> u16 {
        let hints = endpoint.hints.as_ref();
        let zones = hints
            .and_then(|hints| hints.for_zones.as_deref())
            .unwrap_or_default();
        if zones.is_empty() {
            return 0;
        }
        let names = || zones.iter().map(|zone| zone.name.as_str());
        let first = self.0.len().saturating_sub(ZONE_LISTS_COMPARED_MAX);
        let mut known = self.0.iter().skip(first);
        let found = known.position(|list| list.iter().map(|name| &**name).eq(names()));
        let index = found.map_or(self.0.len(), |place| first + place);
        let Ok(place) = u16::try_from(index + 1) else {
            return 0;
        };
        if index == self.0.len() {
            self.0.push(names().map(Box::from).collect());
        }
        place
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
