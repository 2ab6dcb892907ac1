//! Plays one scenario: events in, then everything that the step expects.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dormouse_agent_services::change::{Event, Object};
use dormouse_agent_services::{
    Affinities, Changes, Family, Flow, Node, NodeAddresses, NodePortAddresses, PortId, Prefix,
    Protocol, ServiceKey, Services, Strictness,
};
use serde_json::{Value, json};

use crate::outcomes;
use crate::service_ports;
use crate::tally::{Tally, Topic};

/// The node of one scenario, and what it remembers from step to step.
pub(crate) struct Run {
    pub(crate) services: Services,
    pub(crate) affinities: Affinities,
    flows: Vec<(String, Flow)>,
}

impl Run {
    pub(crate) fn new(node: &Value, strictness: Strictness) -> Self {
        Self {
            services: Services::new(read_node(node), strictness),
            affinities: Affinities::default(),
            flows: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self, step: &Value, tally: &mut Tally) {
        for event in list(&step["events"]) {
            self.apply(event);
        }
        let changes = self.services.sync();
        self.affinities.forget(&changes);
        let flushed = self.flush(&changes);
        for affinity in list(&step["newAffinity"]) {
            self.bind(affinity);
        }
        for flow in list(&step["newFlows"]) {
            self.flows.push((text(&flow["id"]), read_flow(flow)));
        }
        let expect = &step["expect"];
        service_ports::compare(self, expect, tally);
        outcomes::compare(self, expect, tally);
        let scanned = Family::ALL
            .into_iter()
            .filter(|family| changes.scans(*family));
        let scanned: Vec<_> = scanned.map(Family::name).collect();
        tally.compare(
            Topic::Scan,
            "families",
            &json!(scanned),
            &or_empty(&expect["conntrackScan"]),
        );
        let wanted = sorted(list(&expect["conntrackFlushed"]).map(text).collect());
        tally.compare(Topic::Flush, "flows", &json!(flushed), &json!(wanted));
    }

    fn apply(&mut self, event: &Value) {
        let object = &event["object"];
        let present = event["type"] != "DELETED";
        match object["kind"].as_str().unwrap() {
            "Service" => self.tell(present, Object::Service(&read(object))),
            "EndpointSlice" => self.tell(present, Object::EndpointSlice(&read(object))),
            "Node" => self.tell(present, Object::Node(&read(object))),
            kind => panic!("unknown kind {kind}"),
        }
    }

    fn tell(&mut self, present: bool, object: Object<'_>) {
        self.services.apply(&if present {
            Event::Applied(object)
        } else {
            Event::Deleted(object)
        });
    }

    /// Forgets the flows that are stale, in the families that are looked at.
    fn flush(&mut self, changes: &Changes) -> Vec<String> {
        let stale = |flow: &Flow| {
            changes.scans(Family::of(flow.destination)) && self.services.is_stale(flow)
        };
        let known = std::mem::take(&mut self.flows);
        let (gone, kept): (Vec<_>, Vec<_>) = known.into_iter().partition(|(_, flow)| stale(flow));
        self.flows = kept;
        sorted(gone.into_iter().map(|(id, _)| id).collect())
    }

    fn bind(&mut self, affinity: &Value) {
        let client = address(&affinity["client"]);
        let backend: SocketAddr = text(&affinity["backend"]).parse().unwrap();
        let service = text(&affinity["service"]);
        let (namespace, name) = service.split_once('/').unwrap();
        let id = PortId {
            service: ServiceKey::new(namespace, name),
            name: Arc::from(affinity["port"].as_str().unwrap_or_default()),
            protocol: Protocol::named(affinity["protocol"].as_str()).unwrap(),
            family: Family::of(client),
        };
        self.affinities.record(&id, client, backend, 0);
    }
}

fn read_node(node: &Value) -> Node {
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

fn read_flow(flow: &Value) -> Flow {
    Flow {
        protocol: Protocol::named(flow["protocol"].as_str()).unwrap(),
        destination: address(&flow["dst"]),
        port: number(&flow["dstPort"]),
        reply_source: address(&flow["replySrc"]),
        reply_port: number(&flow["replySrcPort"]),
    }
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    T::deserialize(object).unwrap()
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(crate) fn or_empty(value: &Value) -> Value {
    match value {
        Value::Null => json!([]),
        other => other.clone(),
    }
}

pub(crate) fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn number(value: &Value) -> u16 {
    u16::try_from(value.as_u64().unwrap()).unwrap()
}

fn address(value: &Value) -> IpAddr {
    value.as_str().unwrap().parse().unwrap()
}

fn prefix(value: &Value) -> Prefix {
    Prefix::parse(value.as_str().unwrap()).unwrap()
}
