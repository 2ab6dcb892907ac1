//! Containers: what a node can run and probe.

use super::*;

#[test]
fn a_template_that_three_times_exceeds_a_request_to_the_store_is_refused() {
    check(
        |v| v["spec"]["container"]["args"] = json!(["a".repeat(400 << 10)]),
        "spec.container",
        "at most 409600 are stored",
    );
}

#[test]
fn what_a_node_would_ignore_is_refused() {
    let container = |field: &'static str, value: Value| {
        move |v: &mut Value| v["spec"]["container"][field] = value
    };
    check(
        container(
            "volumeMounts",
            json!([{"name": "data", "mountPath": "/data"}]),
        ),
        "spec.container.volumeMounts",
        "is not supported",
    );
    check(
        container("securityContext", json!({"runAsUser": 1})),
        "spec.container.securityContext",
        "is not supported",
    );
    check(
        container("readinessProbe", json!({"exec": {"command": ["true"]}})),
        "spec.container.readinessProbe.exec",
        "is not supported",
    );
    let https = json!({"httpGet": {"port": 80, "scheme": "HTTPS"}});
    check(
        container("livenessProbe", https),
        "spec.container.livenessProbe.httpGet.scheme",
        "use HTTP",
    );
    let get = json!({"port": 80, "host": "example.com"});
    check(
        container("livenessProbe", json!({"httpGet": get})),
        "spec.container.livenessProbe.httpGet.host",
        "is not supported",
    );
    check(
        container(
            "livenessProbe",
            json!({"tcpSocket": {"port": 80}, "periodSeconds": 0}),
        ),
        "spec.container.livenessProbe.periodSeconds",
        "at least 1",
    );
    let all = json!({
        "httpGet": {"path": "/up", "port": 80, "scheme": "HTTP"}, "periodSeconds": 5,
        "timeoutSeconds": 2, "failureThreshold": 3, "initialDelaySeconds": 0, "successThreshold": 1,
    });
    let valid = decoded(container("livenessProbe", all));
    assert_eq!(errors_of(&valid, &[]), vec![]);
}

#[test]
fn what_no_pod_could_run_or_probe_is_refused() {
    let probe = "spec.container.readinessProbe";
    for (field, value, at, message) in [
        (
            "readinessProbe",
            json!({"httpGet": {"port": 80}, "tcpSocket": {"port": 80}}),
            probe.to_owned(),
            "does one of them",
        ),
        (
            "readinessProbe",
            json!({"httpGet": {"port": 99_999}}),
            format!("{probe}.httpGet.port"),
            "use 1 to 65535",
        ),
        (
            "readinessProbe",
            json!({"tcpSocket": {"port": "web"}}),
            format!("{probe}.tcpSocket.port"),
            "`web` is not the name of a port",
        ),
        (
            "readinessProbe",
            json!({"httpGet": {"port": 80, "path": "/a b\r\nx: y"}}),
            format!("{probe}.httpGet.path"),
            "must begin with /",
        ),
        (
            "ports",
            json!([{"containerPort": 80}, {"containerPort": 0}]),
            "spec.container.ports[1].containerPort".to_owned(),
            "use 1 to 65535",
        ),
        (
            "args",
            json!(["a\0b"]),
            "spec.container.args".to_owned(),
            "a NUL character",
        ),
        (
            "env",
            json!([{"name": "A", "value": "a\0b"}]),
            "spec.container.env[0].value".to_owned(),
            "a NUL character",
        ),
        (
            "workingDir",
            json!("srv"),
            "spec.container.workingDir".to_owned(),
            "an absolute path",
        ),
    ] {
        check(|v| v["spec"]["container"][field] = value, &at, message);
    }
    let named = json!({
        "name": "app", "command": ["/bin/true"], "ports": [{"name": "web", "containerPort": 80}],
        "readinessProbe": {"tcpSocket": {"port": "web"}},
    });
    let valid = decoded(|v| v["spec"]["container"] = named);
    assert_eq!(errors_of(&valid, &[]), vec![]);
}

#[test]
fn quantities_are_checked() {
    let resources = |value: Value| move |v: &mut Value| v["spec"]["container"]["resources"] = value;
    check(
        resources(json!({"requests": {"cpu": "much"}})),
        "spec.container.resources.requests.cpu",
        "not a quantity",
    );
    check(
        resources(json!({"limits": {"memory": "-1Mi"}})),
        "spec.container.resources.limits.memory",
        "not a quantity",
    );
    check(
        resources(json!({"requests": {"nvidia.com/gpu": "1"}})),
        "spec.container.resources.requests.nvidia.com/gpu",
        "cpu and memory",
    );
    check(
        resources(json!({"requests": {"memory": "65Mi"}, "limits": {"memory": "64Mi"}})),
        "spec.container.resources.requests.memory",
        "above the limit, `64Mi`",
    );
    let valid =
        resources(json!({"requests": {"cpu": "250m", "memory": "1.5Gi"}, "limits": {"cpu": "1"}}));
    assert_eq!(errors_of(&decoded(valid), &[]), vec![]);
}

#[test]
fn environment_variables_and_ports_are_unique_and_have_names() {
    for (env, message) in [
        (
            json!([{"name": "A\n"}]),
            "`A\\n` is not a valid environment variable name",
        ),
        (
            json!([{"name": "B"}, {"name": "A"}, {"name": "B"}]),
            "`B` is the name of an earlier variable",
        ),
    ] {
        let last = env.as_array().unwrap().len() - 1;
        let field = format!("spec.container.env[{last}].name");
        check(|v| v["spec"]["container"]["env"] = env, &field, message);
    }
    let ports = |ports: Value| move |v: &mut Value| v["spec"]["container"]["ports"] = ports;
    check(
        ports(json!([{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80}])),
        "spec.container.ports[1].containerPort",
        "80 is the number of an earlier port",
    );
    for name in [
        "BAD_NAME!",
        "",
        "80",
        "a--b",
        "-a",
        "a-",
        "a\nb",
        "abcdefghijklmnop",
    ] {
        check(
            ports(json!([{"containerPort": 80, "name": name}])),
            "spec.container.ports[0].name",
            "is no name of a port",
        );
    }
    check(
        ports(json!([{"containerPort": 80, "name": "web"}, {"containerPort": 81, "name": "web"}])),
        "spec.container.ports[1].name",
        "is the name of an earlier port",
    );
    let fine = ports(json!([
        {"containerPort": 80, "name": "http-1"}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 81},
    ]));
    assert_eq!(errors_of(&decoded(fine), &[]), vec![]);
}

#[test]
fn a_probe_without_an_action_is_refused() {
    for (probe, given) in [
        ("readinessProbe", json!({})),
        ("livenessProbe", json!({"periodSeconds": 3})),
    ] {
        check(
            |v| v["spec"]["container"][probe] = given,
            &format!("spec.container.{probe}"),
            "set httpGet or tcpSocket",
        );
    }
}
