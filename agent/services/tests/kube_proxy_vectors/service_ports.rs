//! Comparison of service ports and health check answers with kube-proxy's.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_agent_services::{Answer, Family, Policy, ServicePort, Set, Source};
use dormouse_agent_services_oracle::{Affinities, Decision, Packet, decide};
use serde_json::{Value, json};

use crate::outcomes::backend_text;
use crate::scenario::Run;
use crate::tally::{Tally, Topic};
use dormouse_agent_services_samples::recorded::{list, sorted};

pub(crate) fn compare(run: &Run, expect: &Value, tally: &mut Tally) {
    let ports = run.services.ports();
    let ports = ports.map(|port| (name(port), describe(run, port)));
    let wanted = by_name(&expect["servicePorts"]);
    pairwise(Topic::ServicePort, &ports.collect(), &wanted, tally);
    let wanted = by_name(&expect["healthChecks"]);
    pairwise(Topic::Health, &health_checks(run), &wanted, tally);
}

fn by_name(entries: &Value) -> BTreeMap<String, Value> {
    let entries = list(entries);
    entries
        .map(|entry| (wanted_name(entry), entry.clone()))
        .collect()
}

/// Compares entries of one name; one that only one side has is a difference too.
fn pairwise(
    topic: Topic,
    ours: &BTreeMap<String, Value>,
    wanted: &BTreeMap<String, Value>,
    tally: &mut Tally,
) {
    let names: BTreeSet<_> = ours.keys().chain(wanted.keys()).collect();
    for name in names {
        let side = |entries: &BTreeMap<String, Value>| entries.get(name).cloned();
        let (ours, wanted) = (side(ours), side(wanted));
        tally.compare(topic, name, &json!(ours), &json!(wanted));
    }
}

fn name(port: &ServicePort) -> String {
    let id = &port.id;
    format!(
        "{}:{}:{}:{}",
        id.service,
        id.name,
        id.protocol,
        id.family.name()
    )
}

fn wanted_name(entry: &Value) -> String {
    let word = |field: &str| entry[field].as_str().unwrap_or_default();
    let (service, family) = (word("service"), word("family"));
    format!("{service}:{}:{}:{family}", word("port"), word("protocol"))
}

fn describe(run: &Run, port: &ServicePort) -> Value {
    let id = &port.id;
    let addresses = &port.addresses;
    let texts = |list: &[std::net::IpAddr]| sorted(list.iter().map(ToString::to_string).collect());
    let ranges = addresses.source_ranges.as_ref();
    let ranges = ranges.map(|ranges| sorted(ranges.iter().map(ToString::to_string).collect()));
    let backends = |set: Set| sorted(port.set(set).map(backend_text).collect());
    let used = |policy, set| port.uses(policy).then(|| backends(set));
    let external = |source| takes_external(run, port).then(|| word(port.external_answer(source)));
    let mut described = json!({
        "service": id.service.to_string(),
        "protocol": id.protocol.to_string(),
        "family": id.family.name(),
        "clusterIP": addresses.cluster_ip.to_string(),
        "portNumber": port.number,
        "nodePort": port.node_port,
        "externalIPs": texts(&addresses.external_ips),
        "loadBalancerVIPs": texts(&addresses.load_balancer_ips),
        "sourceRanges": ranges,
        "affinitySeconds": port.affinity_s,
        "internalLocal": port.internal == Policy::Local,
        "externalLocal": port.external == Policy::Local,
        "healthCheckNodePort": port.health_port,
        "anyEndpoints": port.any_endpoints,
    });
    let fields = described.as_object_mut().unwrap();
    fields.retain(|_, value| !is_absent(value));
    fields.extend([
        ("port".to_owned(), json!(&*id.name)),
        (
            "cluster".to_owned(),
            json!(used(Policy::Cluster, Set::Cluster)),
        ),
        ("local".to_owned(), json!(used(Policy::Local, Set::Local))),
        (
            "reachable".to_owned(),
            json!(sorted(port.backends.iter().map(backend_text).collect())),
        ),
        ("internal".to_owned(), json!(internal(run, port))),
        ("external".to_owned(), json!(external(Source::Outside))),
        (
            "externalFromPods".to_owned(),
            json!(external(from_pods(run, port))),
        ),
        ("externalFromNode".to_owned(), json!(external(Source::Node))),
    ]);
    fields.retain(|_, value| !value.is_null());
    described
}

fn is_absent(value: &Value) -> bool {
    let empty = value.as_array().is_some_and(Vec::is_empty);
    empty || value.is_null() || *value == json!(false)
}

fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Backends(Set::Cluster) => "cluster",
        Answer::Backends(Set::Local) => "local",
        Answer::Reject => "reject",
        Answer::Drop => "drop",
    }
}

/// Without a pod range, no source is a pod.
fn from_pods(run: &Run, port: &ServicePort) -> Source {
    match run.services.node().pod_range(port.id.family) {
        Some(_) => Source::Pod,
        None => Source::Outside,
    }
}

/// The answer to a packet from outside to the cluster IP: backends that are service addresses themselves are unreachable.
fn internal(run: &Run, port: &ServicePort) -> &'static str {
    let source = match port.id.family {
        Family::V4 => "203.0.113.77".parse(),
        Family::V6 => "2001:db8:ffff::77".parse(),
    };
    let packet = Packet {
        source: source.unwrap(),
        destination: port.addresses.cluster_ip,
        port: port.number,
        protocol: port.id.protocol,
    };
    match decide(&run.services, &packet, &Affinities::default(), 0) {
        Decision::Pass => "none",
        Decision::Reject => "reject",
        Decision::Drop => "drop",
        Decision::Translate(translation) => word(Answer::Backends(translation.set)),
    }
}

fn health_checks(run: &Run) -> BTreeMap<String, Value> {
    let mut described = BTreeMap::new();
    let services: BTreeSet<_> = run.services.ports().map(|port| &port.id.service).collect();
    for service in services {
        for (health, family) in run.services.health_checks(service).iter().zip(Family::ALL) {
            let Some(health) = health else { continue };
            let check = json!({
                "service": service.to_string(),
                "family": family.name(),
                "port": health.port,
                "localEndpoints": health.local_endpoints,
                "status": if health.local_endpoints > 0 { 200 } else { 503 },
            });
            described.insert(wanted_name(&check), check);
        }
    }
    described
}

/// Whether the service port has an address on this node that takes traffic from outside.
fn takes_external(run: &Run, port: &ServicePort) -> bool {
    let addresses = &port.addresses;
    let on_nodes = || {
        !run.services
            .node()
            .node_port_addresses(port.id.family)
            .is_empty()
    };
    !addresses.external_ips.is_empty()
        || !addresses.load_balancer_ips.is_empty()
        || port.node_port.is_some() && on_nodes()
}
