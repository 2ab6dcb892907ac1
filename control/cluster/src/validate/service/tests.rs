//! Kubernetes' refusals of Services.
#![expect(clippy::needless_pass_by_value, reason = "the values are literals")]

use serde_json::{Value, json};

use super::*;
use crate::service::set_defaults;

fn ranges(texts: &[&str]) -> ServiceRanges {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    ServiceRanges::parse(&texts, &[]).unwrap()
}

fn made(spec: Value) -> Service {
    let value = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
    serde_json::from_value(value).unwrap()
}

fn errors(old: Option<&Service>, mut new: Service, ranges: &ServiceRanges) -> Vec<String> {
    set_defaults(&mut new, old, ranges);
    let errors = service(old, &new, ranges);
    errors.iter().map(ToString::to_string).collect()
}

fn check(spec: Value, want: &[&str]) {
    let ranges = ranges(&["fd00:96::/108"]);
    assert_eq!(errors(None, made(spec.clone()), &ranges), want, "{spec}");
}

fn with_port(fields: Value) -> Value {
    let mut spec = json!({"ports": [{"port": 80}]});
    json_merge(&mut spec, fields);
    spec
}

fn json_merge(target: &mut Value, fields: Value) {
    if let (Some(target), Value::Object(fields)) = (target.as_object_mut(), fields) {
        target.extend(fields);
    }
}

#[test]
fn what_kubernetes_accepts_is_accepted() {
    for spec in [
        json!({"ports": [{"port": 80}]}),
        json!({"ports": [{"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP"}]}),
        json!({"clusterIP": "None", "selector": {"app": "web"}}),
        json!({"type": "ExternalName", "externalName": "db.example.com"}),
        with_port(json!({"type": "NodePort", "externalTrafficPolicy": "Local"})),
        with_port(
            json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["2001:db8::/64"], "externalTrafficPolicy": "Local"}),
        ),
        with_port(json!({"sessionAffinity": "ClientIP"})),
        with_port(json!({"externalIPs": ["2001:db8::1"], "externalTrafficPolicy": "Local"})),
        with_port(json!({"trafficDistribution": "PreferClose", "internalTrafficPolicy": "Local"})),
        with_port(json!({"clusterIP": "fd00:96::5", "ipFamilyPolicy": "PreferDualStack"})),
        json!({"ports": [{"port": 80, "targetPort": "http"}]}),
    ] {
        check(spec, &[]);
    }
}

#[test]
fn ports_are_named_differ_and_have_a_protocol() {
    check(json!({}), &["spec.ports: Required value"]);
    check(
        json!({"ports": [{"port": 80}, {"name": "b", "port": 81}, {"name": "b", "port": 81}]}),
        &[
            "spec.ports[0].name: Required value",
            "spec.ports[2].name: Duplicate value: \"b\"",
            "spec.ports[2]: Duplicate value: {\"port\":81,\"protocol\":\"TCP\"}",
        ],
    );
    check(
        json!({"ports": [{"port": 0, "protocol": "ICMP", "targetPort": 65_536}]}),
        &[
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            "spec.ports[0].targetPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
        ],
    );
    let errors = errors(
        None,
        made(json!({"ports": [{"port": 80, "targetPort": "web_port", "nodePort": 30_000}]})),
        &ranges(&["fd00:96::/108"]),
    );
    assert!(
        errors[0].starts_with(
            "spec.ports[0].targetPort: Invalid value: \"web_port\": must contain only"
        )
    );
    assert_eq!(
        errors[1],
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"
    );
}

#[test]
fn fields_of_other_types_are_refused() {
    check(
        with_port(json!({"type": "Headless"})),
        &[
            "spec.type: Unsupported value: \"Headless\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
        ],
    );
    check(
        json!({"type": "ExternalName", "clusterIP": "fd00:96::1"}),
        &[
            "spec.externalName: Required value",
            "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
        ],
    );
    check(
        with_port(json!({"type": "NodePort", "clusterIP": "None"})),
        &[
            "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
        ],
    );
    check(
        with_port(
            json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 30_001, "loadBalancerSourceRanges": ["x"]}),
        ),
        &[
            "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
            "spec.healthCheckNodePort: Invalid value: 30001: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
            "spec.loadBalancerSourceRanges[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            "spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ],
    );
    let timeout = json!({"clientIP": {"timeoutSeconds": 0}});
    check(
        with_port(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": timeout})),
        &[
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than or equal to 86400",
        ],
    );
}

#[test]
fn addresses_are_of_the_families_that_the_cluster_has() {
    check(
        with_port(json!({"clusterIP": "x"})),
        &[
            "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ],
    );
    check(
        with_port(json!({"clusterIP": "10.96.0.1"})),
        &["spec.ipFamilies[0]: Invalid value: \"IPv4\": not configured on this cluster"],
    );
    check(
        with_port(json!({"ipFamilyPolicy": "RequireDualStack"})),
        &[
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ],
    );
    check(
        with_port(json!({"externalIPs": ["fe80::1"]})),
        &[
            "spec.externalIPs[0]: Invalid value: \"fe80::1\": may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ],
    );
    let dual = ranges(&["fd00:96::/108", "10.96.0.0/16"]);
    let both = json!({"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "SingleStack"});
    let found = errors(None, made(with_port(both)), &dual);
    assert!(
        found[0].starts_with("spec.ipFamilyPolicy: Invalid value: \"SingleStack\""),
        "{found:?}"
    );
    let crossed = json!({"ipFamilies": ["IPv6"], "clusterIP": "10.96.0.1"});
    assert_eq!(
        errors(None, made(with_port(crossed)), &dual),
        [
            "spec.clusterIPs[0]: Invalid value: \"10.96.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`",
        ]
    );
}

#[test]
fn a_cluster_ip_never_changes() {
    let ranges = ranges(&["fd00:96::/108"]);
    let mut old = made(with_port(json!({"clusterIP": "fd00:96::5"})));
    set_defaults(&mut old, None, &ranges);
    let changed = made(with_port(json!({"clusterIP": "fd00:96::6"})));
    assert_eq!(
        errors(Some(&old), changed, &ranges),
        ["spec.clusterIPs[0]: Invalid value: \"fd00:96::6\": may not change once set",]
    );
    let headless = made(with_port(json!({"clusterIP": "None"})));
    assert_eq!(errors(Some(&old), headless, &ranges).len(), 1);
    let silent = made(with_port(json!({"type": "NodePort"})));
    assert_eq!(errors(Some(&old), silent, &ranges), [""; 0]);
    let name = made(json!({"type": "ExternalName", "externalName": "db.example.com"}));
    assert_eq!(errors(Some(&old), name, &ranges), [""; 0]);
}

#[test]
fn a_service_of_ten_thousand_ports_is_one_of_kubernetes() {
    let port = |number: u16| json!({"name": format!("p{number}"), "port": number});
    let ports: Vec<Value> = (1..=10_000).map(port).collect();
    check(json!({"ports": ports}), &[]);
}
