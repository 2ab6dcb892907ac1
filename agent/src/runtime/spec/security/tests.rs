//! Fields that are honoured, and fields that are refused.

use serde_json::{Value, json};

use super::*;
use crate::runtime::spec::Spec;

fn parse(pod: &Value, container: &Value) -> Result<Security, String> {
    let container = json!({ "name": "app", "command": ["x"], "securityContext": container });
    let pod = json!({ "spec": { "securityContext": pod, "containers": [container] } });
    let spec = Spec::parse(&pod.to_string());
    spec.map(|spec| spec.security)
        .map_err(|error| error.to_string())
}

#[test]
fn a_pod_has_a_user_of_its_own_that_is_not_root() {
    let security = parse(&Value::Null, &Value::Null).unwrap();
    assert_eq!((security.user, security.group), (None, None));
    assert!(security.groups.is_empty() && security.is_filtered);
    let users = ["a-1", "a-2", ""].map(own_user);
    assert_ne!(users[0], users[1]);
    assert!(
        users
            .iter()
            .all(|user| *user >= OWN_USERS && *user <= 0x7fff_ffff)
    );
    assert_eq!(own_user("a-1"), users[0]);
}

#[test]
fn users_and_groups_are_those_of_the_container_before_those_of_the_pod() {
    let pod = json!({
        "runAsUser": 1000, "runAsGroup": 1001, "supplementalGroups": [7, 8], "fsGroup": 9,
        "fsGroupChangePolicy": "OnRootMismatch", "supplementalGroupsPolicy": "Strict", "runAsNonRoot": true,
        "seccompProfile": { "type": "Unconfined" }, "appArmorProfile": { "type": "Unconfined" }, "sysctls": [],
    });
    let restricted = json!({
        "runAsUser": 2000, "runAsNonRoot": true, "allowPrivilegeEscalation": false, "privileged": false,
        "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] }, "procMount": "Default",
        "readOnlyRootFilesystem": true, "seccompProfile": { "type": "RuntimeDefault" },
    });
    let security = parse(&pod, &restricted).unwrap();
    let expected = Security {
        user: Some(2000),
        group: Some(1001),
        groups: vec![7, 8, 9],
        is_filtered: true,
    };
    assert_eq!(security, expected);
    assert!(!parse(&pod, &Value::Null).unwrap().is_filtered);
}

#[test]
fn what_a_node_cannot_honour_is_refused_with_its_path() {
    let fields = [
        ("runAsUser", json!(0)),
        ("runAsGroup", json!(0)),
        ("runAsUser", json!(2_147_483_648_u32)),
        (
            "seccompProfile",
            json!({ "type": "Localhost", "localhostProfile": "a.json" }),
        ),
        ("appArmorProfile", json!({ "type": "RuntimeDefault" })),
        ("seLinuxOptions", json!({ "level": "s0" })),
        ("windowsOptions", json!({})),
    ];
    let of_pod = [
        ("fsGroup", json!(0)),
        ("supplementalGroups", json!([7, 0])),
        ("supplementalGroupsPolicy", json!("Merge")),
        (
            "sysctls",
            json!([{ "name": "net.core.somaxconn", "value": "1" }]),
        ),
        ("seLinuxChangePolicy", json!("Recursive")),
    ];
    let of_container = [
        ("privileged", json!(true)),
        ("allowPrivilegeEscalation", json!(true)),
        ("procMount", json!("Unmasked")),
        ("readOnlyRootFilesystem", json!(false)),
    ];
    for (name, value) in fields.iter().chain(&of_pod) {
        let error = parse(&json!({ *name: value }), &Value::Null).unwrap_err();
        assert!(
            error.starts_with(&format!("spec.securityContext.{name}: ")),
            "{error}"
        );
    }
    for (name, value) in fields.iter().chain(&of_container) {
        let error = parse(&Value::Null, &json!({ *name: value })).unwrap_err();
        let path = format!("spec.containers[0].securityContext.{name}: ");
        assert!(error.starts_with(&path), "{error}");
    }
    let added = json!({ "capabilities": { "add": ["NET_BIND_SERVICE", "SYS_ADMIN"] } });
    let error = parse(&Value::Null, &added).unwrap_err();
    assert!(
        error.contains("securityContext.capabilities.add: "),
        "{error}"
    );
    for (name, value) in [
        ("hostNetwork", true),
        ("hostPID", true),
        ("hostIPC", true),
        ("hostUsers", false),
    ] {
        let pod =
            json!({ "spec": { name: value, "containers": [{ "name": "app", "command": ["x"] }] } });
        let error = Spec::parse(&pod.to_string()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("spec.{name}: ")), "{error}");
    }
}
