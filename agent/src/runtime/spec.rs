//! The part of a Pod object that a process needs: command, environment, probe, times. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The label with the name of a pod's app.
const APP_LABEL: &str = "dormouse.dev/app";
/// Kubernetes' default terminationGracePeriodSeconds.
const GRACE_DEFAULT: Duration = Duration::from_secs(30);

/// Why a Pod cannot run as a standalone pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SpecError {
    #[error("the object is not a Pod: {0}")]
    Decode(String),
    #[error("the pod has {0} containers: a standalone pod must have exactly one")]
    Containers(usize),
    #[error(
        "container `{0}` has no command: set `command`, a standalone pod runs a program of the node"
    )]
    Command(String),
    #[error(
        "environment variable `{0}` has no literal value: valueFrom is not supported in standalone pods"
    )]
    Environment(String),
    #[error("the readiness probe's port is not a port of the container")]
    ProbePort,
}

/// The readiness check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// None: ready when the process runs.
    None,
    /// TCP: the port accepts a connection.
    Connect(u16),
    /// HTTP: GET returns a status of 200 to 399.
    Get { port: u16, path: String },
}

/// The process of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    /// Program and arguments.
    pub(super) command: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) working_dir: Option<String>,
    /// The pod's app; empty if it belongs to none.
    pub(super) app: String,
    /// The port of the requests; its connections are watched while the pod drains.
    pub(super) port: Option<u16>,
    pub(super) check: Check,
    /// Interval of the checks after the pod has become ready.
    pub(super) check_period: Duration,
    /// Time limit for draining, and again from SIGTERM to SIGKILL.
    pub(super) grace: Duration,
}

impl Spec {
    /// Parses the Pod object.
    pub(super) fn parse(json: &str) -> Result<Self, SpecError> {
        let pod: Pod =
            serde_json::from_str(json).map_err(|error| SpecError::Decode(error.to_string()))?;
        let app = pod.metadata.labels.unwrap_or_default().remove(APP_LABEL);
        let spec = pod.spec.unwrap_or_default();
        let [container] = spec.containers.as_slice() else {
            return Err(SpecError::Containers(spec.containers.len()));
        };
        let words = [&container.command, &container.args];
        let command: Vec<String> = words.into_iter().flatten().flatten().cloned().collect();
        if command.is_empty() {
            return Err(SpecError::Command(container.name.clone()));
        }
        let port = first_port(container);
        let probe = container.readiness_probe.as_ref();
        let period = probe
            .and_then(|probe| probe.period_seconds)
            .unwrap_or(10)
            .max(1);
        let grace = spec
            .termination_grace_period_seconds
            .and_then(|s| u64::try_from(s).ok());
        Ok(Self {
            command,
            environment: environment(container)?,
            working_dir: container.working_dir.clone(),
            app: app.unwrap_or_default(),
            port,
            check: check(container, probe, port)?,
            check_period: Duration::from_secs(u64::from(period.unsigned_abs())),
            grace: grace.map_or(GRACE_DEFAULT, Duration::from_secs),
        })
    }
}

fn first_port(container: &Container) -> Option<u16> {
    let port = container.ports.as_ref()?.first()?;
    u16::try_from(port.container_port).ok()
}

fn environment(container: &Container) -> Result<BTreeMap<String, String>, SpecError> {
    let mut environment = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        if variable.value_from.is_some() {
            return Err(SpecError::Environment(variable.name.clone()));
        }
        let value = variable.value.clone().unwrap_or_default();
        environment.insert(variable.name.clone(), value);
    }
    Ok(environment)
}

fn check(
    container: &Container,
    probe: Option<&Probe>,
    port: Option<u16>,
) -> Result<Check, SpecError> {
    if let Some(get) = probe.and_then(|probe| probe.http_get.as_ref()) {
        let path = get.path.clone().unwrap_or_else(|| "/".to_owned());
        return Ok(Check::Get {
            port: number(container, &get.port)?,
            path,
        });
    }
    if let Some(socket) = probe.and_then(|probe| probe.tcp_socket.as_ref()) {
        return Ok(Check::Connect(number(container, &socket.port)?));
    }
    Ok(port.map_or(Check::None, Check::Connect))
}

/// A probe's port: a number, or the name of a port of the container.
fn number(container: &Container, port: &IntOrString) -> Result<u16, SpecError> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_ref() == Some(name))
            .map(|port| port.container_port),
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|port| *port > 0)
        .ok_or(SpecError::ProbePort)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(container: &Value) -> Result<Spec, SpecError> {
        Spec::parse(&json!({ "spec": { "containers": [container] } }).to_string())
    }

    #[test]
    fn a_port_without_probe_is_checked_by_connecting() {
        let spec = parse(&json!({
            "name": "app", "command": ["sleep"], "args": ["9"],
            "ports": [{ "containerPort": 8000 }],
        }))
        .unwrap();
        assert_eq!(spec.command, ["sleep", "9"]);
        assert_eq!((spec.port, spec.check), (Some(8000), Check::Connect(8000)));
        assert_eq!(spec.grace, GRACE_DEFAULT);
    }

    #[test]
    fn a_probe_refers_to_its_port_by_number_or_name() {
        let container = |port: Value| {
            json!({
                "name": "app", "command": ["x"], "ports": [{ "name": "web", "containerPort": 81 }],
                "readinessProbe": { "httpGet": { "path": "/up", "port": port } },
            })
        };
        let get = |port| Check::Get {
            port,
            path: "/up".into(),
        };
        assert_eq!(parse(&container(json!("web"))).unwrap().check, get(81));
        assert_eq!(parse(&container(json!(90))).unwrap().check, get(90));
        assert_eq!(parse(&container(json!("db"))), Err(SpecError::ProbePort));
        assert_eq!(parse(&container(json!(0))), Err(SpecError::ProbePort));
    }

    #[test]
    fn an_unsupported_pod_is_refused_with_the_cause() {
        assert!(matches!(Spec::parse("[]"), Err(SpecError::Decode(_))));
        assert_eq!(Spec::parse("{}"), Err(SpecError::Containers(0)));
        let image = json!({ "name": "app", "image": "nginx" });
        assert_eq!(parse(&image), Err(SpecError::Command("app".into())));
        let secret = json!({
            "name": "app", "command": ["x"],
            "env": [{ "name": "KEY", "valueFrom": { "fieldRef": { "fieldPath": "x" } } }],
        });
        assert_eq!(parse(&secret), Err(SpecError::Environment("KEY".into())));
    }
}
