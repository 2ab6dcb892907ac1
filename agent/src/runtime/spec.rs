//! The part of a Pod object that a process needs: command, environment, rights, limits, probe, times. Pure.

mod resources;
mod security;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{self as api, Container, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

pub(super) use resources::Limits;
pub(super) use security::{Security, own_user};

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
    #[error("a probe's port is not a port of the container")]
    ProbePort,
    /// Its path, and why it is refused.
    #[error("{0}: {1}")]
    Field(String, &'static str),
    #[error(
        "spec.securityContext: the node has a user or group with one of these numbers, whose files the pod could read: choose others, or none"
    )]
    NodeId,
}

/// The check of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// None: ready when the process runs.
    None,
    /// TCP: the port accepts a connection.
    Connect(u16),
    /// HTTP: GET returns a status of 200 to 399.
    Get { port: u16, path: String },
}

impl Check {
    /// The port that it connects to.
    pub(super) fn port(&self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::Connect(port) | Self::Get { port, .. } => Some(*port),
        }
    }
}

/// A probe, as in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) check: Check,
    /// Interval of the checks; while a pod starts, its readiness is checked more often.
    pub(super) period: Duration,
    /// Timeout of the connection, and again of the response.
    pub(super) timeout: Duration,
    /// Failures in a row after which a pod has failed the probe.
    pub(super) failures_max: u32,
    /// Time from the start of the process to the first check.
    pub(super) initial_delay: Duration,
}

/// The process of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    /// Program and arguments.
    pub(super) command: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) working_dir: Option<String>,
    pub(super) security: Security,
    pub(super) limits: Limits,
    /// The pod's app; empty if it belongs to none.
    pub(super) app: String,
    /// The port of the requests; its connections are watched while the pod drains.
    pub(super) port: Option<u16>,
    pub(super) readiness: Probe,
    /// A pod that fails it is ended.
    pub(super) liveness: Option<Probe>,
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
        let readiness = container.readiness_probe.clone().unwrap_or_default();
        let liveness = container.liveness_probe.as_ref();
        let liveness = liveness.map(|liveness| probe(container, liveness, port));
        let grace = spec
            .termination_grace_period_seconds
            .and_then(|s| u64::try_from(s).ok());
        Ok(Self {
            command,
            environment: environment(container)?,
            working_dir: container.working_dir.clone(),
            security: Security::of(&spec, container)?,
            limits: Limits::of(container)?,
            app: app.unwrap_or_default(),
            port,
            readiness: probe(container, &readiness, port)?,
            liveness: liveness.transpose()?,
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

/// A probe, with Kubernetes' defaults.
fn probe(container: &Container, probe: &api::Probe, port: Option<u16>) -> Result<Probe, SpecError> {
    let seconds = |given: Option<i32>, default: u32| {
        let given = given.and_then(|given| u32::try_from(given).ok());
        Duration::from_secs(given.unwrap_or(default).into())
    };
    let failures = probe
        .failure_threshold
        .and_then(|given| u32::try_from(given).ok());
    Ok(Probe {
        check: check(container, probe, port)?,
        period: seconds(probe.period_seconds, 10).max(Duration::from_secs(1)),
        timeout: seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1)),
        failures_max: failures.unwrap_or(3).max(1),
        initial_delay: seconds(probe.initial_delay_seconds, 0),
    })
}

fn check(container: &Container, probe: &api::Probe, port: Option<u16>) -> Result<Check, SpecError> {
    if let Some(get) = &probe.http_get {
        let path = get.path.clone().unwrap_or_else(|| "/".to_owned());
        return Ok(Check::Get {
            port: number(container, &get.port)?,
            path,
        });
    }
    if let Some(socket) = &probe.tcp_socket {
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
        let expected = (Some(8000), Check::Connect(8000));
        assert_eq!((spec.port, spec.readiness.check), expected);
        assert_eq!(spec.liveness, None);
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
        let check = |port| parse(&container(port)).unwrap().readiness.check;
        assert_eq!(check(json!("web")), get(81));
        assert_eq!(check(json!(90)), get(90));
        assert_eq!(parse(&container(json!("db"))), Err(SpecError::ProbePort));
        assert_eq!(parse(&container(json!(0))), Err(SpecError::ProbePort));
    }

    #[test]
    fn probes_have_their_times_and_kubernetes_defaults() {
        let spec = parse(&json!({
            "name": "app", "command": ["x"], "ports": [{ "containerPort": 81 }],
            "livenessProbe": {
                "httpGet": { "port": 82 }, "periodSeconds": 5, "timeoutSeconds": 2,
                "failureThreshold": 4, "initialDelaySeconds": 6,
            },
        }))
        .unwrap();
        let readiness = Probe {
            check: Check::Connect(81),
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            failures_max: 3,
            initial_delay: Duration::ZERO,
        };
        let path = "/".into();
        let liveness = Probe {
            check: Check::Get { port: 82, path },
            period: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            failures_max: 4,
            initial_delay: Duration::from_secs(6),
        };
        assert_eq!((spec.readiness, spec.liveness), (readiness, Some(liveness)));
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
