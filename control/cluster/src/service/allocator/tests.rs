//! Addresses and node ports over the life of Services.
#![expect(clippy::needless_pass_by_value, reason = "the values are literals")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::service::set_defaults;

fn ranges(texts: &[&str]) -> ServiceRanges {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    ServiceRanges::parse(&texts, &[]).unwrap()
}

fn service(spec: Value, ranges: &ServiceRanges) -> Service {
    let mut service: Service = serde_json::from_value(json!({"spec": spec})).unwrap();
    set_defaults(&mut service, None, ranges);
    service
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn an_address_is_checked_kept_and_given_to_one_service() {
    let ranges = ranges(&["fd00:96::/112"]);
    let mut all = Allocator::new(&ranges);
    let mut complete = |spec: Value| {
        let mut made = service(spec, &ranges);
        let done = all.complete(&mut made, None, &mut || 7);
        done.map(|_| spec_ips(&made))
            .map_err(|errors| texts(&errors))
    };
    let named = json!({"clusterIP": "fd00:96::5", "ports": [{"port": 80}]});
    assert_eq!(complete(named.clone()), Ok(vec!["fd00:96::5".to_owned()]));
    assert_eq!(complete(named), Err(vec![
        "spec.clusterIPs[0]: Invalid value: \"fd00:96::5\": failed to allocate IP fd00:96::5: provided IP is already allocated".to_owned(),
    ]));
    let outside = complete(json!({"clusterIP": "fd00:97::5"})).unwrap_err();
    assert!(
        outside[0].ends_with("is not in the valid range. The range of valid IPs is fd00:96::/112"),
        "{outside:?}"
    );
    assert_eq!(
        complete(json!({"clusterIP": "None"})),
        Ok(vec!["None".to_owned()])
    );
    assert_eq!(complete(json!({"type": "ExternalName"})), Ok(vec![]));
    assert_eq!(complete(json!({})), Ok(vec!["fd00:96::108".to_owned()]));
}

fn spec_ips(service: &Service) -> Vec<String> {
    service
        .spec
        .as_ref()
        .unwrap()
        .cluster_ips
        .clone()
        .unwrap_or_default()
}

#[test]
fn a_service_of_both_families_has_an_address_of_each() {
    let ranges = ranges(&["fd00:96::/108", "10.96.0.0/16"]);
    let mut all = Allocator::new(&ranges);
    let mut made = service(
        json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4"]}),
        &ranges,
    );
    all.complete(&mut made, None, &mut || 0).unwrap();
    let ips = spec_ips(&made);
    assert!(
        ips[0].starts_with("10.96.") && ips[1].starts_with("fd00:96::"),
        "{ips:?}"
    );
}

#[test]
fn ports_that_differ_in_the_protocol_have_one_node_port() {
    let ranges = ranges(&["fd00:96::/108"]);
    let mut all = Allocator::new(&ranges);
    let mut made = service(
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [
            {"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP"}, {"name": "c", "port": 80, "nodePort": 30_080},
        ]}),
        &ranges,
    );
    all.complete(&mut made, None, &mut || 0).unwrap();
    let spec = made.spec.clone().unwrap();
    let ports: Vec<i32> = spec
        .ports
        .unwrap()
        .iter()
        .filter_map(|port| port.node_port)
        .collect();
    assert_eq!(ports, [30_086, 30_086, 30_080]);
    assert_eq!(spec.health_check_node_port, Some(30_087));
    let mut other = service(
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_086}]}),
        &ranges,
    );
    let errors = all.complete(&mut other, None, &mut || 0).unwrap_err();
    assert_eq!(
        texts(&errors),
        ["spec.ports[0].nodePort: Invalid value: 30086: provided port is already allocated"]
    );
    let mut low = service(
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
        &ranges,
    );
    let errors = all.complete(&mut low, None, &mut || 0).unwrap_err();
    assert!(texts(&errors)[0].ends_with("The range of valid ports is 30000-32767"));
    all.release(&Held::of(&made));
    assert!(all.complete(&mut other, None, &mut || 0).is_ok());
}

#[test]
fn a_service_of_too_many_node_ports_takes_none() {
    let ranges = ranges(&["fd00:96::/108"]);
    let mut all = Allocator::new(&ranges);
    let ports: Vec<Value> = (1..=10_000)
        .map(|port| json!({"name": format!("p{port}"), "port": port}))
        .collect();
    let mut made = service(json!({"type": "NodePort", "ports": ports}), &ranges);
    assert_eq!(
        all.complete(&mut made, None, &mut || 0).unwrap_err().len(),
        1
    );
    let mut other = service(
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_086}]}),
        &ranges,
    );
    assert!(all.complete(&mut other, None, &mut || 0).is_ok());
}

proptest! {
    /// Services come, change and go, also over restarts: at any time each address and node port belongs to one of them, and what
    /// none has can be had.
    #[test]
    fn nothing_belongs_to_two_services_and_nothing_is_lost(
        steps in prop::collection::vec((0_u8..4, 0_u8..6, 0_u8..3, any::<u32>()), 1..60)
    ) {
        let ranges = ranges(&["fd00:96::/125", "10.96.0.0/29"]);
        let mut all = Allocator::new(&ranges);
        let mut stored: BTreeMap<u8, Service> = BTreeMap::new();
        for (step, name, kind, random) in steps {
            let spec = match kind {
                0 => json!({"ports": [{"port": 80}]}),
                1 => json!({"type": "NodePort", "ports": [{"port": 80}], "ipFamilyPolicy": "PreferDualStack"}),
                _ => json!({"clusterIP": "fd00:96::3", "ports": [{"port": 80}]}),
            };
            match step {
                0 | 1 => {
                    let old = stored.get(&name).cloned();
                    let mut new: Service = serde_json::from_value(json!({"spec": spec})).unwrap();
                    set_defaults(&mut new, old.as_ref(), &ranges);
                    // Validation refuses another address.
                    let changes = |old: &Service| spec_ips(old).first() != spec_ips(&new).first();
                    if old.as_ref().is_some_and(changes) {
                        continue;
                    }
                    if all.complete(&mut new, old.as_ref(), &mut || random).is_ok() {
                        if let Some(old) = &old {
                            all.release(&Held::of(old).without(&Held::of(&new)));
                        }
                        stored.insert(name, new);
                    }
                }
                2 => {
                    if let Some(old) = stored.remove(&name) {
                        all.release(&Held::of(&old));
                    }
                }
                _ => {
                    all = Allocator::new(&ranges);
                    for service in stored.values() {
                        all.adopt(service);
                    }
                }
            }
            let held: Vec<Held> = stored.values().map(Held::of).collect();
            let addresses: Vec<IpAddr> = held.iter().flat_map(|held| held.addresses.clone()).collect();
            let distinct: BTreeSet<IpAddr> = addresses.iter().copied().collect();
            prop_assert_eq!(addresses.len(), distinct.len());
            let ports: Vec<u32> = held.iter().flat_map(|held| held.node_ports.clone()).collect();
            let distinct: BTreeSet<u32> = ports.iter().copied().collect();
            prop_assert_eq!(ports.len(), distinct.len());
        }
        let free = std::iter::from_fn(|| all.draw_address(IpFamily::V6, 0)).count();
        let used = stored.values().map(Held::of);
        let used: usize = used.map(|held| held.addresses.iter().filter(|one| one.is_ipv6()).count()).sum();
        prop_assert_eq!(free + used, 7);
    }
}
