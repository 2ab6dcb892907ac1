//! The scenarios recorded from kube-proxy, as the core's types.

use std::net::IpAddr;
use std::path::Path;

use dormouse_agent_services::change::{Event, Object};
use dormouse_agent_services::{Family, Flow};
use dormouse_agent_services::{
    Node, NodeAddresses, NodePortAddresses, PortId, Prefix, Protocol, ServiceKey, Services,
};
use dormouse_agent_services_oracle::Packet;
use dormouse_vectors::Vectors;
use serde_json::Value;

/// Every scenario of the `.jsonl` files in `folder`, or in the one that `DORMOUSE_KUBE_PROXY_VECTORS` names.
pub fn scenarios(folder: &Path) -> impl Iterator<Item = Value> {
    Vectors::find(folder, "DORMOUSE_KUBE_PROXY_VECTORS").scenarios()
}

/// A scenario's node.
pub fn node(node: &Value) -> Node {
    let primary = node["nodeIPs"].as_object().unwrap().values();
    let answering: Vec<_> = list(&node["nodePortAddresses"]).map(text).collect();
    Node {
        name: text(&node["name"]),
        addresses: NodeAddresses {
            primary: primary.map(address).collect(),
            local: list(&node["localIPs"]).map(address).collect(),
        },
        pod_ranges: list(&node["podCIDRs"]).map(prefix).collect(),
        service_ranges: list(&node["serviceCIDRs"]).map(prefix).collect(),
        node_port_addresses: if answering == ["primary"] {
            NodePortAddresses::Primary
        } else {
            NodePortAddresses::Within(list(&node["nodePortAddresses"]).map(prefix).collect())
        },
        masquerade_all: node["masqueradeAll"] == true,
    }
}

/// Applies an event to the services.
pub fn apply(services: &mut Services, event: &Value) {
    let present = event["type"] != "DELETED";
    apply_object(services, present, &event["object"]);
}

/// Applies an object, present or deleted.
pub fn apply_object(services: &mut Services, present: bool, object: &Value) {
    let event = |object| {
        if present {
            Event::Applied(object)
        } else {
            Event::Deleted(object)
        }
    };
    match object["kind"].as_str().unwrap() {
        "Service" => services.apply(&event(Object::Service(&read(object)))),
        "EndpointSlice" => services.apply(&event(Object::EndpointSlice(&read(object)))),
        "Node" => services.apply(&event(Object::Node(&read(object)))),
        kind => panic!("unknown kind {kind}"),
    };
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    T::deserialize(object).unwrap()
}

/// A packet: source, destination, port and protocol, separated by spaces.
pub fn packet(text: &str) -> Packet {
    let words: Vec<_> = text.split(' ').collect();
    Packet {
        source: words[0].parse().unwrap(),
        destination: words[1].parse().unwrap(),
        port: words[2].parse().unwrap(),
        protocol: Protocol::named(Some(words[3])).unwrap(),
    }
}

/// A flow that conntrack knew.
pub fn flow(flow: &Value) -> Flow {
    Flow {
        protocol: Protocol::named(flow["protocol"].as_str()).unwrap(),
        destination: address(&flow["dst"]),
        port: number(&flow["dstPort"]),
        reply_source: address(&flow["replySrc"]),
        reply_port: number(&flow["replySrcPort"]),
    }
}

/// The service port for which a client is on record.
pub fn bound_to(affinity: &Value) -> PortId {
    let service = text(&affinity["service"]);
    let (namespace, name) = service.split_once('/').unwrap();
    PortId {
        service: ServiceKey::new(namespace, name),
        name: affinity["port"].as_str().unwrap_or_default().into(),
        protocol: Protocol::named(affinity["protocol"].as_str()).unwrap(),
        family: Family::of(address(&affinity["client"])),
    }
}

/// The items of a list; none if there is no list.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The texts in their order.
pub fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

/// A text.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// An address.
pub fn address(value: &Value) -> IpAddr {
    value.as_str().unwrap().parse().unwrap()
}

fn number(value: &Value) -> u16 {
    u16::try_from(value.as_u64().unwrap()).unwrap()
}

fn prefix(value: &Value) -> Prefix {
    Prefix::parse(value.as_str().unwrap()).unwrap()
}
