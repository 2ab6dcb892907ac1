//! Reads an EndpointSlice: which addresses, in which condition, behind which ports of which service.

mod mark;

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{self as discovery, EndpointSlice};

use crate::address::{Family, Packed, parse_address};
use crate::few::Few;
use crate::key::Protocol;
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

    /// Without this bit.
    fn without(self, bit: Self) -> Self {
        Self(self.0 & !bit.0)
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
pub(crate) struct Endpoint {
    pub(crate) address: Packed,
    pub(crate) state: State,
    /// Its place in [`Slice::zones`], counted from 1; 0: no hints for zones.
    zones: u16,
}

/// A node may know a million of them.
const _: () = assert!(size_of::<Endpoint>() == 20);

/// The names of zones that endpoints are meant for.
type ZoneList = Box<[Box<str>]>;

/// The different lists of zones in a slice that is being read.
#[derive(Default)]
struct ZoneLists(Vec<ZoneList>);

/// One port of a slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicePort {
    /// The service port's name; empty if it has none.
    pub name: Arc<str>,
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
    pub ports: Few<SlicePort>,
    /// The endpoints that count, sorted by address, each once. Service ports share them.
    endpoints: Arc<[Endpoint]>,
    zones: Box<[ZoneList]>,
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

    pub(crate) fn endpoints(&self) -> &Arc<[Endpoint]> {
        &self.endpoints
    }

    /// Has the hints for zones mean what they mean in this one.
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

    /// Shares the endpoints of the version before, if they are the same.
    pub(crate) fn follow(&mut self, before: &Self) {
        if self.endpoints == before.endpoints {
            self.endpoints = Arc::clone(&before.endpoints);
        }
    }
}

/// The namespace and the name of a slice, if it has both.
pub(crate) fn names(slice: &EndpointSlice) -> Option<(&str, &str)> {
    let meta = &slice.metadata;
    meta.namespace.as_deref().zip(meta.name.as_deref())
}

/// The name of the service that a slice belongs to; none if no node looks at it.
pub(crate) fn owner(slice: &EndpointSlice) -> Option<&str> {
    let labels = slice.metadata.labels.as_ref()?;
    let service = labels.get(SERVICE_LABEL).filter(|name| !name.is_empty())?;
    let headless = labels.contains_key(HEADLESS_LABEL);
    (!headless).then_some(service)
}

/// Reads a slice for the node of that name, in no zone; none if its addresses are of neither family.
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
    let told = slice.endpoints.as_deref().unwrap_or_default();
    let mut endpoints = Vec::with_capacity(told.len());
    endpoints.extend(told.iter().filter_map(|endpoint| {
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

/// Of the same address, one that is not terminating wins over one that is; of several such, the last.
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
    let told = slice.ports.as_deref().unwrap_or_default();
    let mut read = Vec::with_capacity(told.len());
    for port in told {
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
    /// The place of the endpoint's zones, counted from 1. Past 65,535 different lists (a slice has a thousand endpoints
    /// at most) hints do not count.
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
