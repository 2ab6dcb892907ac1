//! Slices after changes of Services, pods and nodes.
#![expect(clippy::needless_pass_by_value, reason = "the values are literals")]

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::Endpoint;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::plan::ENDPOINTS_MAX;

fn service(spec: Value) -> Service {
    let mut all = json!({"clusterIP": "fd00:96::1", "ipFamilies": ["IPv6"], "selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": 8_080, "protocol": "TCP"}]});
    all.as_object_mut()
        .unwrap()
        .extend(spec.as_object().cloned().unwrap());
    let value = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "s1", "labels": {"tier": "front"}}, "spec": all});
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, fields: &Value) -> Pod {
    let number = name
        .bytes()
        .fold(0_u64, |sum, byte| sum * 7 + u64::from(byte))
        % 60_000;
    let mut value = json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}"), "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "app", "ports": [{"name": "http", "containerPort": 9_000}]}]},
        "status": {"podIP": format!("fd00:1::{number:x}"), "conditions": [{"type": "Ready", "status": "True"}]}});
    json_patch(&mut value, fields);
    serde_json::from_value(value).unwrap()
}

fn json_patch(target: &mut Value, fields: &Value) {
    for (name, value) in fields.as_object().unwrap() {
        match value {
            Value::Object(_) if target[name].is_object() => json_patch(&mut target[name], value),
            _ => target[name] = value.clone(),
        }
    }
}

fn key(name: &str) -> Key {
    Key::new("shop", name)
}

/// The state with a store, which takes all writes.
#[derive(Default)]
struct World {
    state: State,
    stored: BTreeMap<Key, EndpointSlice>,
    made: u32,
}

impl World {
    fn with(service: &Service, pods: &[Pod]) -> Self {
        let mut world = Self::default();
        world.state.service(key("web"), Some(service));
        for pod in pods {
            world
                .state
                .pod(key(pod.metadata.name.as_ref().unwrap()), Some(pod));
        }
        world.settle();
        world
    }

    /// Writes what the Services that changed need; returns the number of writes.
    fn settle(&mut self) -> usize {
        let dirty = self.state.take_dirty();
        let actions: Vec<Action> = dirty.iter().flat_map(|key| self.state.plan(key)).collect();
        let writes = actions.len();
        for action in actions {
            let (key, slice) = match action {
                Action::Create(mut slice) => {
                    self.made += 1;
                    let key = key(&format!("slice-{}", self.made));
                    (slice.metadata.name, slice.metadata.namespace) =
                        (Some(key.name.clone()), Some("shop".into()));
                    (key, Some(slice))
                }
                Action::Update(slice) => (key(slice.metadata.name.as_ref().unwrap()), Some(slice)),
                Action::Delete(slice) => (key(slice.metadata.name.as_ref().unwrap()), None),
            };
            self.state.slice(&key, slice.clone());
            match slice {
                Some(slice) => drop(self.stored.insert(key, slice)),
                None => drop(self.stored.remove(&key)),
            }
        }
        let again = self.state.take_dirty();
        let more: Vec<Action> = again.iter().flat_map(|key| self.state.plan(key)).collect();
        assert_eq!(more, [], "a second pass writes");
        writes
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let slices = self.stored.values();
        slices
            .flat_map(|slice| slice.endpoints.clone().unwrap_or_default())
            .collect()
    }

    fn only(&self) -> &EndpointSlice {
        assert_eq!(self.stored.len(), 1, "{:?}", self.stored);
        self.stored.values().next().unwrap()
    }
}

#[test]
fn a_slice_has_what_kubernetes_writes_of_a_ready_pod() {
    let mut world = World::default();
    let node = json!({"metadata": {"name": "node-1", "labels": {ZONE: "west"}}});
    world
        .state
        .node("node-1", Some(&serde_json::from_value(node).unwrap()));
    world.state.service(key("web"), Some(&service(json!({}))));
    world.state.pod(
        key("a"),
        Some(&pod("a", &json!({"status": {"podIP": "fd00:1::a"}}))),
    );
    assert_eq!(world.settle(), 1);
    let made = serde_json::to_value(world.only()).unwrap();
    assert_eq!(
        made["metadata"]["labels"],
        json!({"tier": "front", SERVICE_NAME: "web", MANAGED_BY: MANAGER})
    );
    assert_eq!(
        made["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s1",
        "controller": true, "blockOwnerDeletion": true}])
    );
    assert_eq!(made["addressType"], "IPv6");
    assert_eq!(
        made["ports"],
        json!([{"name": "http", "port": 8_080, "protocol": "TCP"}])
    );
    assert_eq!(
        made["endpoints"],
        json!([{"addresses": ["fd00:1::a"], "nodeName": "node-1", "zone": "west",
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "namespace": "shop", "name": "a", "uid": "u-a"}}])
    );
}

fn check(spec: Value, fields: Value, want: Value) {
    let world = World::with(&service(spec), &[pod("a", &fields)]);
    let conditions: Vec<Value> = world
        .endpoints()
        .iter()
        .map(|one| json!(one.conditions))
        .collect();
    assert_eq!(json!(conditions), want, "{fields}");
}

#[test]
fn conditions_are_those_of_the_pod() {
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let of = |ready: bool, serving: bool, terminating: bool| json!([{"ready": ready, "serving": serving, "terminating": terminating}]);
    check(json!({}), unready.clone(), of(false, false, false));
    check(
        json!({"publishNotReadyAddresses": true}),
        unready,
        of(true, false, false),
    );
    let ends = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    check(json!({}), ends, of(false, true, true));
    check(json!({}), json!({"status": {"phase": "Failed"}}), json!([]));
    check(json!({}), json!({"status": {"podIP": null}}), json!([]));
    check(json!({"ipFamilies": ["IPv4"]}), json!({}), json!([]));
    check(json!({"selector": {"app": "api"}}), json!({}), json!([]));
}

#[test]
fn named_ports_are_those_of_each_pod() {
    let ports = json!([{"name": "a", "port": 80, "targetPort": "http", "protocol": "TCP"}]);
    let other = json!({"spec": {"containers": [{"name": "app", "ports": [{"name": "http", "containerPort": 9_001}]}]}});
    let none = json!({"spec": {"containers": [{"name": "app"}]}});
    let pods = [
        pod("a", &json!({})),
        pod("b", &other),
        pod("c", &json!({})),
        pod("d", &none),
    ];
    let world = World::with(&service(json!({"ports": ports})), &pods);
    let found = world.stored.values().map(|slice| {
        let ports = slice
            .ports
            .as_ref()
            .unwrap()
            .first()
            .and_then(|port| port.port);
        (ports, slice.endpoints.as_ref().unwrap().len())
    });
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    assert_eq!(found, [(None, 1), (Some(9_000), 2), (Some(9_001), 1)]);
}

#[test]
fn only_services_that_select_have_slices_and_they_go_with_the_service() {
    let mut world = World::with(
        &service(json!({"clusterIP": "None"})),
        &[pod("a", &json!({}))],
    );
    let labels = world.only().metadata.labels.clone().unwrap();
    assert_eq!(
        labels
            .get("service.kubernetes.io/headless")
            .map(String::as_str),
        Some("")
    );
    let users = json!({"metadata": {"name": "own", "namespace": "shop", "labels": {SERVICE_NAME: "web"}}, "addressType": "IPv6",
        "endpoints": [], "ports": []});
    world
        .state
        .slice(&key("own"), Some(serde_json::from_value(users).unwrap()));
    assert_eq!(world.settle(), 0);
    // The slices of a Service that no longer selects stay, as in Kubernetes.
    world
        .state
        .service(key("web"), Some(&service(json!({"selector": null}))));
    assert_eq!(world.settle(), 0);
    world.state.service(key("web"), None);
    assert_eq!((world.settle(), world.stored.len()), (1, 0));
    let world = World::with(
        &service(json!({"type": "ExternalName"})),
        &[pod("a", &json!({}))],
    );
    assert_eq!(world.stored.len(), 0);
}

#[test]
fn a_change_of_one_pod_writes_one_slice() {
    let pods: Vec<Pod> = (0..250)
        .map(|number| pod(&format!("p{number:03}"), &json!({})))
        .collect();
    let mut world = World::with(&service(json!({})), &pods);
    let sizes = |world: &World| -> Vec<usize> {
        let slices = world.stored.values();
        slices
            .map(|slice| slice.endpoints.as_ref().unwrap().len())
            .collect()
    };
    assert_eq!(sizes(&world), [100, 100, 50]);
    let unready = json!({"status": {"conditions": []}});
    world.state.pod(key("p120"), Some(&pod("p120", &unready)));
    assert_eq!(world.settle(), 1);
    world.state.pod(key("p120"), None);
    assert_eq!((world.settle(), sizes(&world)), (1, vec![100, 99, 50]));
    // A probe's time is none of an endpoint's fields.
    let later = json!({"status": {"startTime": "2026-01-01T00:00:00Z"}});
    world.state.pod(key("p121"), Some(&pod("p121", &later)));
    assert_eq!(world.settle(), 0);
    world.state.pod(key("q"), Some(&pod("q", &json!({}))));
    assert_eq!((world.settle(), sizes(&world)), (1, vec![100, 100, 50]));
    let node = json!({"metadata": {"name": "node-1", "labels": {ZONE: "west"}}});
    world
        .state
        .node("node-1", Some(&serde_json::from_value(node).unwrap()));
    assert_eq!(world.settle(), 3);
    world.state.node("node-2", Some(&Node::default()));
    assert_eq!(world.settle(), 0);
}

#[test]
fn hints_name_the_zone_or_the_node_of_ready_pods() {
    let node = json!({"metadata": {"name": "node-1", "labels": {ZONE: "west"}}});
    for (distribution, want) in [
        ("PreferClose", json!({"forZones": [{"name": "west"}]})),
        (
            "PreferSameNode",
            json!({"forNodes": [{"name": "node-1"}], "forZones": [{"name": "west"}]}),
        ),
    ] {
        let mut world = World::default();
        world.state.node(
            "node-1",
            Some(&serde_json::from_value(node.clone()).unwrap()),
        );
        world.state.service(
            key("web"),
            Some(&service(json!({"trafficDistribution": distribution}))),
        );
        world.state.pod(key("a"), Some(&pod("a", &json!({}))));
        world.settle();
        assert_eq!(json!(world.endpoints()[0].hints), want);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Pod(u8, Option<u8>),
    Service(Option<u8>),
    Node(bool),
    /// A user removes a slice, or empties it.
    Slice(bool),
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any::<u8>(), proptest::option::weighted(0.7, 0_u8..5)).prop_map(|(pod, state)| Step::Pod(pod, state)),
        2 => proptest::option::weighted(0.8, 0_u8..4).prop_map(Step::Service),
        1 => any::<bool>().prop_map(Step::Node),
        1 => any::<bool>().prop_map(Step::Slice),
        3 => Just(Step::Settle),
    ]
}

fn state_of_pod(number: u8) -> Value {
    match number {
        0 => json!({}),
        1 => json!({"status": {"conditions": []}}),
        2 => json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        3 => json!({"metadata": {"labels": {"app": "api"}}}),
        _ => json!({"spec": {"nodeName": "node-2", "containers": []}}),
    }
}

fn spec_of(number: u8) -> Value {
    match number {
        0 => json!({}),
        1 => json!({"selector": {"app": "api"}}),
        2 => json!({"ports": [{"name": "a", "port": 80, "targetPort": "http", "protocol": "TCP"}]}),
        _ => json!({"ipFamilies": ["IPv6", "IPv4"], "publishNotReadyAddresses": true}),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// After any changes the slices have the endpoints that one pass over the pods finds, and a second pass has nothing to write.
    #[test]
    fn slices_have_the_endpoints_of_the_pods(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::default();
        let (mut pods, mut own): (BTreeMap<String, Pod>, Option<Service>) = Default::default();
        let mut zone = false;
        for step in steps.into_iter().chain([Step::Settle]) {
            match step {
                Step::Pod(number, state) => {
                    let name = format!("p{number}");
                    let new = state.map(|state| pod(&name, &state_of_pod(state)));
                    world.state.pod(key(&name), new.as_ref());
                    match new {
                        Some(new) => drop(pods.insert(name, new)),
                        None => drop(pods.remove(&name)),
                    }
                }
                Step::Service(kind) => {
                    own = kind.map(|kind| service(spec_of(kind)));
                    world.state.service(key("web"), own.as_ref());
                }
                Step::Node(has_zone) => {
                    zone = has_zone;
                    let labels = if has_zone { json!({ZONE: "west"}) } else { json!({}) };
                    let node = json!({"metadata": {"name": "node-1", "labels": labels}});
                    world.state.node("node-1", Some(&serde_json::from_value(node).unwrap()));
                }
                Step::Slice(is_removed) => {
                    if let Some((slice_key, mut slice)) = world.stored.pop_first() {
                        slice.endpoints = None;
                        let left = (!is_removed).then_some(slice);
                        world.state.slice(&slice_key, left.clone());
                        world.stored.extend(left.map(|slice| (slice_key, slice)));
                    }
                }
                Step::Settle => {
                    world.settle();
                    let selecting = own.as_ref().and_then(Selecting::of);
                    let members: Vec<(Key, Member)> =
                        pods.iter().filter_map(|(name, pod)| Some((key(name), Member::of(pod)?))).collect();
                    let want = selecting.map(|selecting| {
                        let chosen = members.iter().filter(|(_, pod)| selecting.selects(&pod.labels));
                        let chosen = chosen.map(|(key, pod)| (key, pod));
                        groups(&selecting, chosen, |node| (zone && node == "node-1").then(|| "west".to_owned()))
                    });
                    let mut want: Vec<String> = want.into_iter().flatten().flat_map(|group| {
                        group.endpoints.into_iter().map(move |one| format!("{:?} {:?}", group.ports, one))
                    }).collect();
                    let mut found: Vec<String> = world.stored.values().flat_map(|slice| {
                        let endpoints = slice.endpoints.clone().unwrap_or_default();
                        endpoints.into_iter().map(|one| format!("{:?} {:?}", slice.ports.clone().unwrap(), one))
                    }).collect();
                    want.sort();
                    found.sort();
                    prop_assert_eq!(found, want);
                    let sizes = world.stored.values().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len));
                    prop_assert!(sizes.max().unwrap_or(0) <= ENDPOINTS_MAX);
                }
            }
        }
    }
}
