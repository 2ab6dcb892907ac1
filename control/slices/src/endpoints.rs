//! The endpoints that a Service should have, by the ports that its pods have for it. Pure.

use std::collections::BTreeMap;

use dormouse_cluster::Key;
use dormouse_cluster::service::IpFamily;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, ForNode, ForZone,
};

use crate::pod::Member;
use crate::service::{Near, Selecting};

/// Endpoints that may be in one slice: of one family, with the same ports.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The family.
    pub family: IpFamily,
    /// The ports, by name.
    pub ports: Vec<EndpointPort>,
    /// The endpoints, in the order of their pods' names; none: an empty slice shows that.
    pub endpoints: Vec<Endpoint>,
}

/// The endpoints of a Service's pods. `zone_of`: the zone of a node.
pub fn groups<'a>(
    service: &Selecting,
    pods: impl IntoIterator<Item = (&'a Key, &'a Member)>,
    zone_of: impl Fn(&str) -> Option<String>,
) -> Vec<Group> {
    let mut pods: Vec<(&Key, &Member)> = pods.into_iter().collect();
    pods.sort_unstable_by_key(|(key, _)| *key);
    let mut groups: Vec<Group> = Vec::new();
    for family in &service.families {
        let before = groups.len();
        let mut places: BTreeMap<Vec<Option<i32>>, usize> = BTreeMap::new();
        for (key, pod) in &pods {
            let Some(endpoint) = endpoint(service, key, pod, *family, &zone_of) else {
                continue;
            };
            let targets = service
                .ports
                .iter()
                .map(|port| Selecting::target(port, pod));
            let targets: Vec<Option<i32>> = targets.collect();
            let place = *places.entry(targets).or_insert_with_key(|targets| {
                let (family, ports) = (*family, ports(service, targets));
                groups.push(Group {
                    family,
                    ports,
                    endpoints: Vec::new(),
                });
                groups.len() - 1
            });
            groups[place].endpoints.push(endpoint);
        }
        if groups.len() == before {
            let (family, ports, endpoints) = (*family, Vec::new(), Vec::new());
            groups.push(Group {
                family,
                ports,
                endpoints,
            });
        }
    }
    groups
}

/// The ports of pods with these numbers for the Service's ports; one that the pods do not have is left out.
fn ports(service: &Selecting, targets: &[Option<i32>]) -> Vec<EndpointPort> {
    let ports = service
        .ports
        .iter()
        .zip(targets)
        .filter_map(|(port, target)| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some((*target)?),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
                app_protocol: port.app_protocol.clone(),
            })
        });
    let mut ports: Vec<EndpointPort> = ports.collect();
    ports.sort_by(|a, b| a.name.cmp(&b.name));
    ports
}

fn endpoint(
    service: &Selecting,
    key: &Key,
    pod: &Member,
    family: IpFamily,
    zone_of: impl Fn(&str) -> Option<String>,
) -> Option<Endpoint> {
    let mut addresses = pod.addresses.iter();
    let address = addresses.find(|address| IpFamily::of(**address) == family)?;
    let ready = service.publish_not_ready || (pod.serving && !pod.terminating);
    let zone = pod.node.as_deref().and_then(zone_of);
    let is_named = |named: &&(String, String)| named.1 == service.name;
    Some(Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(pod.serving),
            terminating: Some(pod.terminating),
        }),
        hints: service
            .near
            .filter(|_| ready)
            .and_then(|near| hints(near, pod, zone.as_ref())),
        hostname: pod
            .hostname
            .as_ref()
            .filter(is_named)
            .map(|named| named.0.clone()),
        node_name: pod.node.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            uid: pod.uid.clone(),
            ..ObjectReference::default()
        }),
        zone,
        ..Endpoint::default()
    })
}

/// For whom the endpoint is meant first.
fn hints(near: Near, pod: &Member, zone: Option<&String>) -> Option<EndpointHints> {
    let zones = zone.map(|name| vec![ForZone { name: name.clone() }]);
    let nodes = pod
        .node
        .as_ref()
        .map(|name| vec![ForNode { name: name.clone() }]);
    let hints = EndpointHints {
        for_nodes: nodes.filter(|_| near == Near::Node),
        for_zones: zones,
    };
    (hints.for_nodes.is_some() || hints.for_zones.is_some()).then_some(hints)
}
