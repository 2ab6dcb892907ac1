//! What Services get that their manifests do not set.
#![expect(clippy::needless_pass_by_value, reason = "the values are literals")]

use serde_json::{Value, json};

use super::*;

fn ranges(texts: &[&str]) -> ServiceRanges {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    ServiceRanges::parse(&texts, &[]).unwrap()
}

fn defaulted(spec: Value, old: Option<&Value>, ranges: &ServiceRanges) -> Value {
    let make = |spec: &Value| serde_json::from_value::<Service>(json!({"spec": spec})).unwrap();
    let mut service = make(&spec);
    set_defaults(&mut service, old.map(make).as_ref(), ranges);
    serde_json::to_value(service.spec).unwrap()
}

#[test]
fn a_new_service_has_the_defaults_of_kubernetes() {
    let ranges = ranges(&["fd00:96::/108"]);
    assert_eq!(
        defaulted(json!({"ports": [{"port": 80}]}), None, &ranges),
        json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
    );
    let balanced = defaulted(
        json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"}),
        None,
        &ranges,
    );
    assert_eq!(balanced["externalTrafficPolicy"], "Cluster");
    assert_eq!(balanced["allocateLoadBalancerNodePorts"], true);
    assert_eq!(
        balanced["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"],
        10_800
    );
    let name = defaulted(
        json!({"type": "ExternalName", "externalName": "x"}),
        None,
        &ranges,
    );
    assert_eq!(
        name,
        json!({"type": "ExternalName", "externalName": "x", "sessionAffinity": "None"})
    );
    let headless = defaulted(json!({"clusterIP": "None"}), None, &ranges);
    assert_eq!(headless["ipFamilies"], json!(["IPv6", "IPv4"]));
    assert_eq!(headless["ipFamilyPolicy"], "RequireDualStack");
    let selects = defaulted(
        json!({"clusterIP": "None", "selector": {"a": "b"}}),
        None,
        &ranges,
    );
    assert_eq!(
        (&selects["ipFamilies"], &selects["clusterIPs"]),
        (&json!(["IPv6"]), &json!(["None"]))
    );
}

#[test]
fn a_manifest_keeps_the_addresses_and_node_ports_that_it_does_not_name() {
    let ranges = ranges(&["fd00:96::/108"]);
    let old = json!({"type": "NodePort", "clusterIP": "fd00:96::5", "clusterIPs": ["fd00:96::5"], "ipFamilies": ["IPv6"],
        "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Cluster",
        "ports": [{"name": "a", "port": 80, "nodePort": 30_080}, {"name": "b", "port": 81, "nodePort": 30_081}]});
    let ports = json!([{"name": "b", "port": 82}, {"name": "c", "port": 83, "nodePort": 30_080}, {"name": "a", "port": 84}]);
    let new = defaulted(
        json!({"type": "NodePort", "ports": ports}),
        Some(&old),
        &ranges,
    );
    assert_eq!(new["clusterIPs"], json!(["fd00:96::5"]));
    let node_port = |index: usize| new["ports"][index]["nodePort"].clone();
    assert_eq!(
        [node_port(0), node_port(1), node_port(2)],
        [json!(30_081), json!(30_080), Value::Null]
    );
    let mut inner = old.clone();
    inner["type"] = json!("ClusterIP");
    let new = defaulted(inner, Some(&old), &ranges);
    assert_eq!(
        (&new["ports"][0]["nodePort"], &new["externalTrafficPolicy"]),
        (&Value::Null, &Value::Null)
    );
    let mut name = old.clone();
    name["type"] = json!("ExternalName");
    let new = defaulted(name, Some(&old), &ranges);
    assert_eq!(
        (&new["clusterIP"], &new["ipFamilies"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn a_service_gains_and_releases_its_second_family() {
    let ranges = ranges(&["fd00:96::/108", "10.96.0.0/16"]);
    let one = json!({"clusterIP": "fd00:96::5", "clusterIPs": ["fd00:96::5"], "ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"});
    let both = defaulted(
        json!({"ipFamilyPolicy": "PreferDualStack"}),
        Some(&one),
        &ranges,
    );
    assert_eq!(both["ipFamilies"], json!(["IPv6", "IPv4"]));
    let mut both = both;
    both["clusterIPs"] = json!(["fd00:96::5", "10.96.0.5"]);
    let kept = defaulted(json!({}), Some(&both), &ranges);
    assert_eq!(kept["clusterIPs"], both["clusterIPs"]);
    let mut single = both.clone();
    single["ipFamilyPolicy"] = json!("SingleStack");
    let single = defaulted(single, Some(&both), &ranges);
    assert_eq!(
        (&single["ipFamilies"], &single["clusterIPs"]),
        (&json!(["IPv6"]), &json!(["fd00:96::5"]))
    );
    let silent = json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]});
    for old in [&both, &one] {
        let single = defaulted(silent.clone(), Some(old), &ranges);
        assert_eq!(single["clusterIPs"], json!(["fd00:96::5"]));
    }
}
